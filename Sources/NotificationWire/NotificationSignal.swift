import BusNames
import DBus
import NotificationCore

/// The signal `Notification` as an observer receives it.
public struct NotificationSignal: Sendable {
    public let name: String
    /// Empty when the notification has none.
    public let object: String
    public let userInfo: [String: PropertyList]
    public let observers: [UInt64]
    public let poster: UniqueName
    public let serial: UInt64
    public let sequence: UInt64

    /// Nil when `message` is another message.
    ///
    /// - Throws: InvalidArgs when its arguments are not those of the contract.
    public init?(_ message: Message) throws(BusError) {
        guard message.isSignal(Wire.interface, "Notification") else { return nil }
        var reader = MessageReader(message)
        name = try reader.read()
        object = try reader.read()
        userInfo = try UserInfoCoding.read(from: &reader)
        observers = try reader.readFixedArray()
        poster = try reader.readUniqueName()
        serial = try reader.read()
        sequence = try reader.read()
    }
}
