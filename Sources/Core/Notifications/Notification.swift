// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// A notification as the service has accepted it: the post, its poster and its serial (N1, N3). It does not change
/// after its creation. ``DistributedCenter`` creates it when a post is matched, or when it restores one from the
/// recovery log.
///
/// All queues that have a notification share one instance.
public final class Notification {
    /// Never empty.
    public let name: String
    /// The empty string means "no object".
    public let object: String
    /// The property list of the post, in encoded form.
    public let userInfo: any UserInfo
    /// The unique bus name of the poster, which the bus verified.
    public let poster: ClientName
    /// The process of the poster; nil where it is unknown.
    public let identity: Identity?
    /// The time when it was posted, in microseconds since 1970 in UTC.
    public let time: Int64
    /// The time after which it is not delivered, as ``Clock/uptime``, in microseconds; nil for never.
    public let expiry: Int64?
    /// The retention that the post asked for: it then becomes the retained value of its name, object and origin (R1).
    /// Nil for other posts.
    public let retention: Retention?
    /// Whether it is also for the other sessions of the machine (G1).
    public let goesToAllSessions: Bool
    /// The position of the post among all posts that the service accepted (D4). It orders notifications over all
    /// clients, while a sequence number counts the notifications of one client.
    public let serial: UInt64
    /// The size that counts against the limits of queues, in bytes: its texts, its userInfo, its poster's identity, and
    /// a fixed size for its entry.
    public let byteCount: Int

    /// Creates a notification for a new or restored post.
    public init(
        name: String, object: String, userInfo: any UserInfo, poster: ClientName, identity: Identity? = nil,
        time: Int64 = 0, expiry: Int64? = nil, retention: Retention? = nil, goesToAllSessions: Bool = false,
        serial: UInt64
    ) {
        self.name = name
        self.object = object
        self.userInfo = userInfo
        self.poster = poster
        self.identity = identity
        self.time = time
        self.expiry = expiry
        self.retention = retention
        self.goesToAllSessions = goesToAllSessions
        self.serial = serial
        byteCount =
            name.utf8.count + object.utf8.count + userInfo.heldByteCount + (identity?.byteCount ?? 0) + Self.overhead
    }

    /// Whether the notification has this name and object, byte for byte.
    func has(name: String, object: String) -> Bool {
        ExactText(self.name) == ExactText(name) && ExactText(self.object) == ExactText(object)
    }

    /// The estimated size of objects, a queue entry and message headers, in bytes. A notification without content
    /// counts with it too.
    private static let overhead = 256
}

/// The userInfo of a notification in encoded form. The core passes it on and does not decode it. The decoder of the
/// post has checked it against ``Limits`` and the types of property lists.
public protocol UserInfo: AnyObject {
    /// The size on the wire, in bytes.
    var byteCount: Int { get }
    /// The bytes of memory that it takes; by default the size on the wire.
    var heldByteCount: Int { get }
}

extension UserInfo {
    public var heldByteCount: Int { byteCount }
}
