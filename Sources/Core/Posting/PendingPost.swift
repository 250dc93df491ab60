// SPDX-License-Identifier: Apache-2.0
/// An accepted post that was not posted yet. It is matched, and gets its serial, when it is posted.
public struct PendingPost {
    public let name: String
    /// The empty string means "no object".
    public let object: String
    public let userInfo: any UserInfo
    /// See ``PostOptions/deliverImmediately``.
    public var deliverImmediately: Bool
    public var style: PostingStyle
    /// The identity of the poster, also after it has left; nil where it is unknown.
    public var identity: Identity?
    /// Whether other sessions get the notification, too (G1).
    public var goesToAllSessions = false
    /// Whether observers have got the notification already, in another way.
    var isTold = false
    /// How the notification is retained; nil when it is not.
    public var retention: Retention?
    /// See ``Notification/expiry``; nil while it waits for its poster's exit.
    public var expiry: Int64?
    /// The expiry in seconds from its poster's exit; nil for never, and for a post of another style.
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

    var kind: NotificationKey { NotificationKey(name: name, object: object, origin: identity?.origin) }

    /// The size that counts against the limits, in bytes.
    var byteCount: Int {
        name.utf8.count + object.utf8.count + userInfo.heldByteCount + (identity?.byteCount ?? 0) + Self.overhead
    }

    /// The estimated size of an entry, its links and its index entries, in bytes.
    private static let overhead = 384

    /// Takes over from the similar posts that it replaces: the most urgent style, and whether one of them was to be
    /// delivered immediately (Q3).
    mutating func takeOver(from replaced: PostingQueues.Removed) {
        style = min(style, replaced.style)
        deliverImmediately = deliverImmediately || replaced.deliverImmediately
    }
}
