// SPDX-License-Identifier: Apache-2.0
/// A part of a notification by which posts in a poster's queue coalesce (Q3, Q7).
public enum CoalescingKey: String, Sendable, CaseIterable {
    case name = "name"
    case object = "object"
}

/// What a poster may ask for.
public struct PostOptions: Equatable, Sendable {
    /// Deliver also to suspended clients, after what they hold (S3), and ahead of what is due in any mode (M6).
    public var deliverImmediately = false
    /// When the service posts it (Q7).
    public var postingStyle = PostingStyle.now
    /// What makes two posts of one poster similar (Q7); empty means that they never are.
    public var coalescing: Set<CoalescingKey> = []
    /// Keep it as the value of its name and object (R1); nil for not.
    public var retention: Retention?
    /// After so many seconds it is no longer kept, and not delivered to whom it still waits for; nil for never. They count
    /// from the post, or from the exit that it waits for.
    public var expiresAfter: UInt32?

    /// Where it comes from (G3); nil when that is this session.
    public var origin: OutsideOrigin?
    /// Whether the other sessions of the machine get it, too, as far as they want it (G1).
    public var goesToAllSessions = false
    /// Of what was posted so in the session of the user that ``origin`` tells, on this machine: an identity that it has by
    /// whichever way it comes. Of those that come with the same one, the first is told to observers.
    public var sameAs: String?
    /// The maximum of ``sameAs``, in bytes.
    public static let maxIdentity = 64

    public init() {}

    /// Whether something happens to it when its poster leaves the bus.
    var goesWithPoster: Bool { postingStyle == .atExit || retention?.whileConnected == true }
}
