// SPDX-License-Identifier: Apache-2.0
/// A part of a notification by which posts coalesce: a new post replaces queued posts of the same poster that are equal
/// in these parts (Q3, Q7).
public enum CoalescingKey: String, Sendable, CaseIterable {
    case name = "name"
    case object = "object"
}

/// The options of a post, as a poster states them.
public struct PostOptions: Equatable, Sendable {
    /// Whether suspended clients get the notification too, after their held notifications (S3). It also goes ahead of
    /// due notifications of all run-loop modes (M6).
    public var deliverImmediately = false
    /// The time at which the service posts it (Q7).
    public var postingStyle = PostingStyle.now
    /// The parts in which a queued post must equal this one to be replaced by it (Q7). With an empty set it replaces
    /// none.
    public var coalescing: Set<CoalescingKey> = []
    /// The retention that makes the notification the retained value of its key, which is the name, the object and the
    /// origin (R1); nil for none.
    public var retention: Retention?
    /// The expiry, in seconds from the post; for an at-exit post, from the exit. Nil for never. After it the
    /// notification is not delivered to clients for which it still waits, and its retention ends.
    public var expiresAfter: UInt32?

    /// The origin of the notification (G3), which a bridge or the service of another session states; nil for this
    /// session.
    public var origin: OutsideOrigin?
    /// Whether the other sessions of the machine get the notification, if they want it (G1).
    public var goesToAllSessions = false
    /// The deduplication ID of a notification from another session of this machine, whose user is in ``origin``. Each
    /// copy of the notification has the same ID, over the system bus and over a bridge. Observers receive only the
    /// first copy.
    public var deduplicationID: String?
    /// The maximum size of ``deduplicationID``, in bytes.
    public static let maxDeduplicationIDBytes = 64

    public init() {}

    /// Whether the service must notice when the poster leaves the bus, for this post.
    var dependsOnDeparture: Bool { postingStyle == .atExit || retention?.whileConnected == true }
}
