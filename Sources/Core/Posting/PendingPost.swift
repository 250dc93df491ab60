// SPDX-License-Identifier: Apache-2.0
/// An accepted post that is not matched yet. It waits in its poster's queue for its posting style, or is matched at
/// once. The center assigns its serial when it is matched.
public struct PendingPost {
    public let name: String
    /// The empty string means "no object".
    public let object: String
    /// The property list of the post, in encoded form.
    public let userInfo: any UserInfo
    /// Whether suspended clients get it too, ahead of due notifications (``PostOptions/deliverImmediately``).
    public var deliverImmediately: Bool
    /// The time at which it is to be posted.
    public var style: PostingStyle
    /// The process of the poster; nil where it is unknown. It stays here after the poster has left.
    public var identity: Identity?
    /// Whether the other sessions of the machine get the notification too (G1).
    public var goesToAllSessions = false
    /// Whether a copy of the post came before, on another path from the same session. Observers then do not get it
    /// again; it is only retained.
    var isDuplicate = false
    /// The retention that makes the notification a retained value; nil for none.
    public var retention: Retention?
    /// The time after which the notification is not delivered, as ``Clock/uptime``, in microseconds. It is nil for
    /// never, and while the post waits for the exit of its poster.
    public var expiry: Int64?
    /// For an at-exit post, the expiry in seconds from the exit of its poster. It is nil for never, and for other
    /// posts.
    public var secondsAfterExit: UInt32?

    public init(
        name: String, object: String, userInfo: any UserInfo, deliverImmediately: Bool, style: PostingStyle,
        identity: Identity? = nil
    ) {
        self.name = name
        self.object = object
        self.userInfo = userInfo
        self.deliverImmediately = deliverImmediately
        self.style = style
        self.identity = identity
    }

    /// The key of the notification.
    var key: NotificationKey { NotificationKey(name: name, object: object, origin: identity?.origin) }

    /// The size that counts against the limits, in bytes.
    var byteCount: Int {
        name.utf8.count + object.utf8.count + userInfo.heldByteCount + (identity?.byteCount ?? 0) + Self.overhead
    }

    /// The estimated size of the entry in the queue, its links and its index entries, in bytes.
    private static let overhead = 384

    /// Takes over two properties of the queued posts that this post replaces: the most urgent style, and immediate
    /// delivery if any of them had it (Q3).
    mutating func takeOver(from replaced: PostingQueues.Removed) {
        style = min(style, replaced.style)
        deliverImmediately = deliverImmediately || replaced.deliverImmediately
    }
}
