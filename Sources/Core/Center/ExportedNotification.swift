// SPDX-License-Identifier: Apache-2.0
/// A notification for the other sessions of the machine (G1): a post with the option `all-sessions`. The service sends
/// it to their services over the system bus. In this session it is posted like any other.
public struct ExportedNotification {
    public let name: String
    /// The empty string means "no object".
    public let object: String
    public let userInfo: any UserInfo
    /// Whether suspended clients get it too (``PostOptions/deliverImmediately``).
    public let deliverImmediately: Bool
    /// The retention in this session; nil for a notification that is not retained.
    public let retention: Retention?
    /// The time after which it is not delivered, as ``Clock/uptime``, in microseconds; nil for never.
    public let expiry: Int64?
    /// The position of the post among all posts that this service accepted.
    public let serial: UInt64
    /// The time when it was posted, in microseconds since 1970 in UTC.
    public let time: Int64

    public init(
        name: String, object: String, userInfo: any UserInfo, deliverImmediately: Bool = false, retention: Retention?,
        expiry: Int64?, serial: UInt64 = 0, time: Int64 = 0
    ) {
        self.name = name
        self.object = object
        self.userInfo = userInfo
        self.deliverImmediately = deliverImmediately
        self.retention = retention
        self.expiry = expiry
        self.serial = serial
        self.time = time
    }
}
