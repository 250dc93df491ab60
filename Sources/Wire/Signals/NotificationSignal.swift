// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// `Notification`: a notification for the client, with the client's matching observers (D6).
///
/// The service encodes it with ``send(_:userInfo:behind:messageSerial:over:)``, and the client library decodes it as
/// ``ArrivedNotification``. The values of this type are for other programs and tests.
public struct NotificationSignal: CenterSignal, Equatable {
    public var name: String
    /// The object of the notification; empty for none.
    public var object: String
    /// The userInfo; its texts hold no NUL character.
    public var userInfo: [String: PropertyList]
    /// The matching observers of the client.
    public var observers: [ObserverID]
    /// The poster, as the bus verified it.
    public var poster: UniqueName
    /// The position among all notifications that the service accepted (D4).
    public var serial: UInt64
    /// The sequence number in the stream of the client: 1, 2, 3 …, with holes only where ``DroppedSignal`` reported a
    /// loss.
    public var sequence: UInt64
    /// The details that the client requested; only ``NotificationsSignal`` carries them.
    public var details: [String: PropertyList] = [:]

    public init(
        name: String, object: String, userInfo: [String: PropertyList], observers: [ObserverID], poster: UniqueName,
        serial: UInt64, sequence: UInt64
    ) {
        self.name = name
        self.object = object
        self.userInfo = userInfo
        self.observers = observers
        self.poster = poster
        self.serial = serial
        self.sequence = sequence
    }

    public static let member: MemberName = "Notification"
    public static let arguments: [Interface.Argument] = [
        .init("name", "s"), .init("object", "s"), .init("user_info", "a{sv}"), .init("observers", "at"),
        .init("poster", "s"), .init("serial", "t"), .init("sequence", "t"),
    ]

    public init(from reader: inout MessageReader) throws(BusError) {
        name = try reader.read()
        object = try reader.read()
        userInfo = try UserInfoCoding.read(from: &reader)
        observers = try reader.readFixedArray().map(ObserverID.init)
        poster = try reader.readUniqueName()
        serial = try reader.read()
        sequence = try reader.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(name)
        writer.append(object)
        UserInfoCoding.append(checked: userInfo, to: &writer)
        writer.append(fixedArray: observers.map(\.rawValue))
        writer.append(poster.rawValue)
        writer.append(serial)
        writer.append(sequence)
    }

    /// Encodes the message as the service sends it. Name, object and userInfo are copied in encoded form from the post;
    /// the *own* part of the delivery follows: observers, poster, serial and sequence number.
    ///
    /// - Parameter messageSerial: The serial of the message, unique on its connection.
    public static func message(
        for delivery: Delivery, userInfo: WireUserInfo, messageSerial: UInt32
    ) -> MarshalledMessage {
        head(for: delivery.client).message(serial: messageSerial, userInfo.commonBody, size: maxOwnBytes(of: delivery))
        {
            appendOwn(delivery, to: &$0)
        }
    }

    /// Returns the D-Bus header of such messages to a client. The service keeps it for the client's later messages, and
    /// passes it to ``send(_:userInfo:behind:messageSerial:over:)``.
    public static func head(for client: ClientName) -> EncodedHeader { form.head(to: client) }

    /// Sends the same message without a copy in memory. The first part is the bytes of the post, which all receivers
    /// share.
    ///
    /// - Parameters:
    ///   - delivery: The notification with its receiver and observers.
    ///   - userInfo: The userInfo of the notification.
    ///   - head: The header for the receiver.
    ///   - messageSerial: The serial of the message, unique on its connection.
    ///   - bus: The connection.
    public static func send(
        _ delivery: Delivery, userInfo: WireUserInfo, behind head: EncodedHeader, messageSerial: UInt32,
        over bus: some MessageBus
    ) {
        bus.send(head, serial: messageSerial, userInfo.commonBody, size: maxOwnBytes(of: delivery)) {
            appendOwn(delivery, to: &$0)
        }
    }

    /// Returns the maximum size of the arguments, in bytes.
    static func maxBytes(of delivery: Delivery, _ userInfo: WireUserInfo) -> Int {
        userInfo.commonBody.count + maxOwnBytes(of: delivery)
    }

    /// Returns the maximum size of the own part of a delivery, in bytes.
    private static func maxOwnBytes(of delivery: Delivery) -> Int {
        MarshalledBytes.maxBytes(ofIntegers: delivery.observers.count)
            + MarshalledBytes.maxBytes(of: delivery.notification.poster.rawValue) + 24
    }

    /// Appends the arguments at a position that is aligned to 8 bytes.
    static func append(_ delivery: Delivery, userInfo: WireUserInfo, to body: inout MarshalledBytes) {
        body.append(bytes: userInfo.commonBody)
        appendOwn(delivery, to: &body)
    }

    /// Appends the own part of a delivery.
    private static func appendOwn(_ delivery: Delivery, to body: inout MarshalledBytes) {
        switch delivery.observers {
        case .one(let observer): body.append(arrayOf: observer.rawValue)
        case .many(let observers): body.append(observers.map(\.rawValue))
        }
        body.append(delivery.notification.poster.rawValue)
        body.append(delivery.notification.serial)
        body.append(delivery.sequence)
    }

    private static let form = MessageTemplate.signal(
        path: Wire.path, interface: Wire.interface, member: member, signature: "ssa{sv}atstt")
}
