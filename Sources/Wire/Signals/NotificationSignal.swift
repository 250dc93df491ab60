// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// `Notification`: a notification that reached the client, with its observers that it matched (D6).
public struct NotificationSignal: CenterSignal, Equatable {
    public var name: String
    /// Empty when the notification has none.
    public var object: String
    /// Its texts hold no NUL character.
    public var userInfo: [String: PropertyList]
    public var observers: [ObserverID]
    /// The poster, as the bus verified it.
    public var poster: UniqueName
    /// The place among all notifications that the service accepted (D4).
    public var serial: UInt64
    /// The place among those of the client: 1, 2, 3 … without holes, unless ``DroppedSignal`` said so.
    public var sequence: UInt64
    /// What the client asked for besides; only in ``NotificationsSignal``, this message has none.
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

    /// The same message out of the bytes that the post came in, as the service sends it: most of it is not looked at
    /// again.
    ///
    /// - Parameter messageSerial: of the message, unique among those of the connection.
    public static func message(
        for delivery: Delivery, userInfo: WireUserInfo, messageSerial: UInt32
    ) -> MarshalledMessage {
        head(for: delivery.client).message(serial: messageSerial, userInfo.commonBody, size: maxOwnBytes(of: delivery))
        {
            appendOwn(delivery, to: &$0)
        }
    }

    /// The header of such messages to a client: for ``send(_:userInfo:behind:messageSerial:over:)``.
    public static func head(for client: ClientName) -> MessageHead { form.head(to: client) }

    /// Sends the same message. What others get as well is laid out once, by the poster.
    public static func send(
        _ delivery: Delivery, userInfo: WireUserInfo, behind head: MessageHead, messageSerial: UInt32,
        over bus: some MessageBus
    ) {
        bus.send(head, serial: messageSerial, userInfo.commonBody, size: maxOwnBytes(of: delivery)) {
            appendOwn(delivery, to: &$0)
        }
    }

    /// The most that the arguments take.
    static func maxBytes(of delivery: Delivery, _ userInfo: WireUserInfo) -> Int {
        userInfo.commonBody.count + maxOwnBytes(of: delivery)
    }

    private static func maxOwnBytes(of delivery: Delivery) -> Int {
        MarshalledBytes.maxBytes(ofIntegers: delivery.observers.count)
            + MarshalledBytes.maxBytes(of: delivery.notification.poster.rawValue) + 24
    }

    /// Appends the arguments, for a place that D-Bus would align to 8.
    static func append(_ delivery: Delivery, userInfo: WireUserInfo, to body: inout MarshalledBytes) {
        body.append(bytes: userInfo.commonBody)
        appendOwn(delivery, to: &body)
    }

    /// Appends the arguments behind those that the post has as well.
    private static func appendOwn(_ delivery: Delivery, to body: inout MarshalledBytes) {
        switch delivery.observers {
        case .one(let observer): body.append(arrayOf: observer.rawValue)
        case .many(let observers): body.append(observers.map(\.rawValue))
        }
        body.append(delivery.notification.poster.rawValue)
        body.append(delivery.notification.serial)
        body.append(delivery.sequence)
    }

    private static let form = MessageForm.signal(
        path: Wire.path, interface: Wire.interface, member: member, signature: "ssa{sv}atstt")
}
