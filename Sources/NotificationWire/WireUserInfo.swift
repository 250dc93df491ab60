import DBus
import NotificationCore

/// A userInfo that passes through: it stays in the message it came with, and is copied from there, types unchanged,
/// into the signals that carry it on.
public final class WireUserInfo: UserInfo {
    public let byteCount: Int
    /// At the userInfo of the post it came with.
    private let source: MessageReader
    /// The signal up to what differs from client to client, made when the first one is sent.
    private var commonPart: Message?

    /// Takes the `a{sv}` that comes next in a post, and moves `reader` behind it.
    ///
    /// - Throws: ``CenterError/invalidUserInfo(path:reason:)`` for what is no property-list value, or
    ///   ``CenterError/limitExceeded(_:value:)`` (N3, E1).
    public init(from reader: inout MessageReader, limits: Limits) throws(CenterError) {
        source = reader
        var checker = PropertyListChecker(limits: limits)
        byteCount = try checker.check(userInfo: &reader)
    }

    /// The signal `Notification` for one client.
    public func signal(for delivery: Delivery) -> Message {
        let message = commonPart(of: delivery.notification).copy()
        message.destination = BusName(unchecked: delivery.client)
        var writer = MessageWriter(message)
        writer.append(fixedArray: delivery.observers.ids.map(\.rawValue))
        writer.append(delivery.notification.poster)
        writer.append(delivery.notification.serial)
        writer.append(delivery.sequence)
        return message
    }

    private func commonPart(of notification: Notification) -> Message {
        if let commonPart { return commonPart }
        let message = Message.signal(path: Wire.path, interface: Wire.interface, member: "Notification")
        var writer = MessageWriter(message)
        writer.append(notification.name)
        writer.append(notification.object)
        var userInfo = source
        writer.copyValue(from: &userInfo)
        commonPart = message
        return message
    }
}
