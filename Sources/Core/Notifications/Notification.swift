// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// A notification between processes (N1, N3): made once by the center, then only read.
///
/// One instance is shared by every queue that holds it.
public final class Notification {
    /// Never empty.
    public let name: String
    /// The empty string means "no object".
    public let object: String
    public let userInfo: any UserInfo
    /// The poster's unique name, as the bus verified it.
    public let poster: ClientName
    /// Who that is; nil where nothing tells.
    public let identity: Identity?
    /// When it was posted, in microseconds since 1970 in UTC.
    public let time: Int64
    /// When it is over for whoever has not got it, as ``Clock/uptime`` tells time; nil for never.
    public let expiry: Int64?
    /// How it was posted to be kept as the value of its name and object (R1); nil for not.
    public let retention: Retention?
    /// Whether it was posted for the other sessions of the machine, too (G1).
    public let goesToAllSessions: Bool
    /// The place of this notification among all that the center accepted (D4).
    public let serial: UInt64
    /// What it counts against the limits of queues, in bytes: its texts, its userInfo, who posted it, and
    /// what an entry costs.
    public let byteCount: Int

    /// Made by the center for a post, or by whoever restores what one had queued.
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

    /// Whether it has this name and object, byte for byte.
    func has(name: String, object: String) -> Bool {
        ExactText(self.name) == ExactText(name) && ExactText(self.object) == ExactText(object)
    }

    /// Objects, queue entry and message headers, roughly; so that a million empty notifications are not free.
    private static let overhead = 256
}

/// The userInfo of a notification on its way. The core carries it and never looks inside: whoever decodes it has
/// checked it against ``Limits`` and the property-list types before.
public protocol UserInfo: AnyObject {
    /// Bytes on the wire.
    var byteCount: Int { get }
    /// Bytes that are kept of it, and with it; those on the wire where nothing else is.
    var heldByteCount: Int { get }
}

extension UserInfo {
    public var heldByteCount: Int { byteCount }
}
