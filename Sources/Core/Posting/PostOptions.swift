// SPDX-License-Identifier: Apache-2.0
/// A part of a notification by which posts in a poster's queue coalesce (Q3, Q7).
public enum CoalescingKey: String, Sendable, CaseIterable {
    case name = "name"
    case object = "object"
}

/// The options of a post.
public struct PostOptions: Equatable, Sendable {
    /// Whether to deliver the notification also to suspended clients, after their held notifications (S3), and ahead of
    /// due notifications of any mode (M6).
    public var deliverImmediately = false
    /// When the service posts it (Q7).
    public var postingStyle = PostingStyle.now
    /// The parts in which two posts of one poster must be equal to coalesce (Q7). With an empty set the post does not
    /// coalesce.
    public var coalescing: Set<CoalescingKey> = []
    /// How the notification is retained as the value of its name and object (R1); nil when it is not.
    public var retention: Retention?
    /// The expiry, in seconds from the post, or from the exit for which the post waits; nil for never. An expired
    /// notification is no longer retained, and not delivered to clients for which it still waits.
    public var expiresAfter: UInt32?

    /// The origin of the notification (G3); nil for this session.
    public var origin: OutsideOrigin?
    /// Whether the other sessions of the machine get the notification, if they want it (G1).
    public var goesToAllSessions = false
    /// The deduplication ID of a notification that another session of this machine posted to all sessions; ``origin``
    /// names that session's user. Each copy of the notification has the same ID, by whichever way it arrives. Observers
    /// receive only the first copy.
    public var sameAs: String?
    /// The maximum size of ``sameAs``, in bytes.
    public static let maxIdentity = 64

    public init() {}

    /// Whether the departure of its poster affects the post.
    var dependsOnDeparture: Bool { postingStyle == .atExit || retention?.whileConnected == true }
}
