// SPDX-License-Identifier: Apache-2.0
/// A post that was accepted: its parts, and how it is to be posted. It is matched, and gets its serial, when it is.
public struct PendingPost {
    public let name: String
    /// The empty string means "no object".
    public let object: String
    public let userInfo: any UserInfo
    /// See ``PostOptions/deliverImmediately``.
    public var deliverImmediately: Bool
    public var style: PostingStyle
    /// Who posted it, also when that has left since; nil where nothing tells.
    public var identity: Identity?
    /// Whether other sessions get it, too (G1).
    public var goesToAllSessions = false
    /// Whether observers have got it already, by another way.
    var isTold = false
    /// Whether it is kept; nil for not.
    public var retention: Retention?
    /// See ``Notification/expiry``; nil while it waits for its poster's exit.
    public var expiry: Int64?
    /// After so many seconds from its poster's exit its time is over; nil for never, and for a post of another style.
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

    /// What it counts against the limits, in bytes.
    var byteCount: Int {
        name.utf8.count + object.utf8.count + userInfo.heldByteCount + (identity?.byteCount ?? 0) + Self.overhead
    }

    /// Entry, links and index entries, roughly.
    private static let overhead = 384

    /// Takes over from similar posts whose place it takes: the more urgent style, and that one of them was to be
    /// delivered immediately (Q3).
    mutating func takeOver(from replaced: PostingQueues.Removed) {
        style = min(style, replaced.style)
        deliverImmediately = deliverImmediately || replaced.deliverImmediately
    }
}
