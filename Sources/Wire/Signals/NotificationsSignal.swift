// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// `Notifications`: a batch of notifications, for a client that requested batches with ``SetClientOptions`` (F1). Such
/// a client receives no ``NotificationSignal``: even a single notification is a batch. Order and sequence numbers are
/// the same.
public struct NotificationsSignal: CenterSignal, Equatable {
    public var notifications: [NotificationSignal]

    public init(_ notifications: [NotificationSignal]) {
        self.notifications = notifications
    }

    public static let member: MemberName = "Notifications"
    public static let arguments: [Interface.Argument] = [
        .init("notifications", "a(ssa{sv}atstta{sv})", qtType: "QList<CarillonNotification>")
    ]

    public init(from reader: inout MessageReader) throws(BusError) {
        notifications = []
        var structures = try reader.readContainer(.array)
        while !structures.isAtEnd {
            var structure = try structures.readContainer(.structure)
            var notification = try NotificationSignal(from: &structure)
            notification.details = try UserInfoCoding.read(from: &structure)
            notifications.append(notification)
        }
    }

    public func append(to writer: inout MessageWriter) {
        writer.array(of: "(ssa{sv}atstta{sv})") { writer in
            for notification in notifications {
                writer.structure { writer in
                    notification.append(to: &writer)
                    UserInfoCoding.append(checked: notification.details, to: &writer)
                }
            }
        }
    }

    /// Encodes the message as the service sends it. Name, object and userInfo of each notification are copied in
    /// encoded form.
    ///
    /// - Parameters:
    ///   - batch: The deliveries, all of them for `client`.
    ///   - messageSerial: The serial of the message, unique on its connection.
    ///   - userInfo: Returns the userInfo of a notification.
    public static func message(
        for batch: [Delivery], to client: ClientName, messageSerial: UInt32,
        userInfo: (Notification) -> WireUserInfo
    ) -> MarshalledMessage {
        // D-Bus aligns each structure to 8 bytes.
        let size = batch.reduce(MarshalledBytes.maxBytesOfArray) {
            $0 + 8 + NotificationSignal.maxBytes(of: $1, userInfo($1.notification))
                + NotificationDetails.maxBytes(of: $1)
        }
        return form.message(to: client, serial: messageSerial, size: size) { body in
            body.array { structures in
                for delivery in batch {
                    NotificationSignal.append(
                        delivery, userInfo: userInfo(delivery.notification), to: &structures)
                    NotificationDetails.append(of: delivery, to: &structures)
                }
            }
        }
    }

    private static let form = MessageTemplate.signal(
        path: Wire.path, interface: Wire.interface, member: member, signature: "a(ssa{sv}atstta{sv})")
}
