// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// A notification between processes (N1, N3), created once by the center and immutable.
///
/// All queues that hold a notification share one instance.
public final class Notification {
    /// Never empty.
    public let name: String
    /// The empty string means "no object".
    public let object: String
    public let userInfo: any UserInfo
    /// The poster's unique name, as the bus verified it.
    public let poster: ClientName
    /// The identity of the poster; nil where it is unknown.
    public let identity: Identity?
    /// The time when it was posted, in microseconds since 1970 in UTC.
    public let time: Int64
    /// The time when it expires, as ``Clock/uptime``, in microseconds; nil for never. After it the notification is not
    /// delivered.
    public let expiry: Int64?
    /// How it was posted to be retained as the value of its name and object (R1); nil when it was not.
    public let retention: Retention?
    /// Whether it was posted for the other sessions of the machine, too (G1).
    public let goesToAllSessions: Bool
    /// The position of this notification among all that the center accepted (D4).
    public let serial: UInt64
    /// The size that counts against the limits of queues, in bytes: its texts, its userInfo, its poster's identity, and
    /// the overhead of an entry.
    public let byteCount: Int

    /// Creates the notification of a post, or restores a queued one.
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

    /// The estimated size of objects, a queue entry and message headers, in bytes, so that empty notifications count
    /// too.
    private static let overhead = 256
}

/// The userInfo of a notification in transit. The core carries it and never looks inside: its decoder has checked it
/// against ``Limits`` and the property-list types.
public protocol UserInfo: AnyObject {
    /// The size on the wire, in bytes.
    var byteCount: Int { get }
    /// The bytes that are held in memory for it; by default the size on the wire.
    var heldByteCount: Int { get }
}

extension UserInfo {
    public var heldByteCount: Int { byteCount }
}
