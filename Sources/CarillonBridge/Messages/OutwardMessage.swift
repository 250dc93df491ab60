// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A message to the broker: a notification of this session, or the removal of a retained value. ``Exporter`` creates
/// it, queues it and publishes it.
struct OutwardMessage: Equatable {
    let name: String
    /// The object; empty for none.
    let object: String
    /// The userInfo; empty for a removal.
    let payload: [UInt8]
    /// The media type of the payload; nil for a removal.
    let contentType: String?
    /// Whether the broker retains it as a value, or removes the value.
    let isRetained: Bool
    /// The expiry time, in microseconds since 1970; nil for never.
    let expiry: Int64?
    /// The user properties. ``Exporter`` sets the sequence number when it sends the message.
    var properties: MessageProperties

    /// Creates the message for a notification of the session.
    ///
    /// - Parameters:
    ///   - details: the decoded details of the notification (P1).
    ///   - keepsWidths: whether integers keep their widths, for which the payload is CBOR; otherwise it is JSON.
    ///   - run: the run of this bridge, to which a value is bound that ends with its poster (R8).
    init(_ notification: ArrivedNotification, details: [String: PropertyList], keepsWidths: Bool, run: String) {
        func isTrue(_ detail: Detail) -> Bool { details[detail.rawValue] == .boolean(true) }
        func microseconds(_ detail: Detail) -> Int64? {
            if case .int64(let time)? = details[detail.rawValue] { time } else { nil }
        }
        name = notification.name
        object = notification.object
        let userInfo = notification.userInfo.decoded()
        payload = keepsWidths ? Payload.cbor(of: userInfo) : Payload.json(of: userInfo)
        contentType = keepsWidths ? Payload.binaryContentType : Payload.contentType
        // The service retains the notification as a value (detail `kept`), or sends a retained value again (detail
        // `retained`, below).
        isRetained = isTrue(.kept)
        expiry = microseconds(.expiry)
        properties = MessageProperties()
        properties.object = notification.object
        properties.serial = notification.serial
        properties.hops = 1
        properties.time = microseconds(.time)
        properties.isOldValue = isTrue(.retained)
        properties.keepsWidths = keepsWidths
        properties.boundTo = isTrue(.whileConnected) ? run : nil
        if isTrue(.allSessions), let time = properties.time {
            properties.identity = SessionIdentity.text(userID: geteuid(), serial: notification.serial, time: time)
        }
    }

    /// Creates the message for a device, with a payload that devices understand. It is never retained: devices receive
    /// events and no values (G2).
    init(toDevice message: OutwardMessage, _ userInfo: [String: PropertyList]) {
        let (payload, contentType) = Payload.plain(of: userInfo)
        self.init(
            name: message.name, object: message.object, payload: payload, contentType: contentType, isRetained: false,
            expiry: message.expiry, properties: message.properties)
        properties.keepsWidths = false
        properties.boundTo = nil
        properties.identity = nil
    }

    /// Creates a message from its parts.
    init(
        name: String, object: String, payload: [UInt8], contentType: String?, isRetained: Bool, expiry: Int64?,
        properties: MessageProperties
    ) {
        self.name = name
        self.object = object
        self.payload = payload
        self.contentType = contentType
        self.isRetained = isRetained
        self.expiry = expiry
        self.properties = properties
    }

    /// Creates the removal of the value of a name and object.
    init(removalOf name: String, _ object: String) {
        self.name = name
        self.object = object
        payload = []
        contentType = nil
        isRetained = true
        expiry = nil
        properties = MessageProperties()
        properties.object = object
        properties.hops = 1
    }

    /// Returns the topic for the message. A retained message with an object has a topic of its own, because a broker
    /// retains one message for each topic.
    func topic(of origin: Origin, in realm: String) -> String {
        let subject: BridgeTopic.Subject =
            isRetained && !object.isEmpty ? .value(name: name, object: object) : .notification(name: name)
        return BridgeTopic(subject, of: origin).text(in: realm)
    }

    /// The approximate size in memory, in bytes.
    var byteCount: Int { payload.count + name.utf8.count + object.utf8.count + 256 }

    /// - Parameter now: microseconds since 1970.
    func isExpired(at now: Int64) -> Bool { expiry.map { $0 <= now } ?? false }

    /// Returns the publication, with the remaining lifetime in seconds, at least 1.
    ///
    /// - Parameter now: microseconds since 1970.
    func publication(on topic: String, now: Int64) -> Publication {
        let seconds = expiry.map { expiry in
            UInt32(clamping: max(1, (expiry.subtractingReportingOverflow(now).partialValue + 500_000) / 1_000_000))
        }
        return Publication(
            topic: topic, payload: payload, isRetained: isRetained, contentType: contentType, expiry: seconds,
            userProperties: properties.all)
    }
}
