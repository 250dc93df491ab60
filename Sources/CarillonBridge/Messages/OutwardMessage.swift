// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A message for the broker: a notification, or the removal of a value.
struct OutwardMessage: Equatable {
    let name: String
    let object: String
    let payload: [UInt8]
    let contentType: String?
    let isRetained: Bool
    /// The end of its lifetime, in microseconds since 1970; nil for never.
    let expiry: Int64?
    var properties: MessageProperties

    /// - Parameters:
    ///   - details: the details of the notification that the service was asked for (P1).
    ///   - keepsWidths: whether integers keep their widths, for which the payload is CBOR.
    ///   - run: the run of the bridge's presence, to which a value is bound that ends with its poster (R8).
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

    /// Creates the message for a device. Devices receive news and no values, so nothing is retained (G2).
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

    func topic(of origin: Origin, in realm: String) -> String {
        let subject: BridgeTopic.Subject =
            isRetained && !object.isEmpty ? .value(name: name, object: object) : .notification(name: name)
        return BridgeTopic(subject, of: origin).text(in: realm)
    }

    /// The approximate size in memory, in bytes.
    var byteCount: Int { payload.count + name.utf8.count + object.utf8.count + 256 }

    /// - Parameter now: microseconds since 1970.
    func isExpired(at now: Int64) -> Bool { expiry.map { $0 <= now } ?? false }

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
