/// Where a distributed notification comes from, as the bus and the service tell it.
public struct Origin: Hashable, Sendable {
    /// The poster's unique name on the bus, such as `:1.42`, which the bus verified and nobody can forge (D6).
    public let poster: String
    /// The place among all notifications that the service accepted (D4).
    public let serial: UInt64
    /// The place among those that this program was sent: 1, 2, 3 … (D6).
    public let sequence: UInt64

    /// The origin of the notification that the calling observer is being given; nil elsewhere.
    ///
    /// For blocks and methods. What they start as a task inherits it.
    @TaskLocal public static var current: Origin?
}
