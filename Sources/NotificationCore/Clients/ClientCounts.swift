/// What a client was sent so far.
public struct ClientCounts: Equatable, Sendable {
    /// The sequence number of the last notification that was delivered, or announced as lost.
    public var sequence: UInt64
    public var delivered: UInt64
    public var dropped: UInt64

    public init(sequence: UInt64 = 0, delivered: UInt64 = 0, dropped: UInt64 = 0) {
        self.sequence = sequence
        self.delivered = delivered
        self.dropped = dropped
    }
}
