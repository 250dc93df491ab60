// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A notification on its way to the broker, or that a value is gone.
struct OutwardMessage: Equatable {
    let name: String
    let object: String
    let payload: [UInt8]
    let contentType: String?
    let isRetained: Bool
    /// When it is of no use any more, in microseconds since 1970; nil for never.
    let expiry: Int64?
    var properties: MessageProperties

    /// - Parameters:
    ///   - details: what the service told of it, which it was asked for (P1).
    ///   - keepsWidths: whether integers are to keep their widths, for which the payload is CBOR.
    ///   - run: that of the bridge's presence, to which a value is bound that goes with its poster (R8).
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

    /// The same for a device, which is told what is, and not what was: nothing is retained (G2).
    init(toDevice message: OutwardMessage, _ userInfo: [String: PropertyList]) {
        let (payload, contentType) = Payload.plain(of: userInfo)
        self.init(
            name: message.name, object: message.object, payload: payload, contentType: contentType, isRetained: false,
            expiry: message.expiry, properties: message.properties)
        properties.keepsWidths = false
        properties.boundTo = nil
        properties.identity = nil
    }

    /// One that was made before.
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

    /// That the value of this name and object is gone.
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

    /// What it takes while it waits, in bytes, roughly.
    var byteCount: Int { payload.count + name.utf8.count + object.utf8.count + 256 }

    /// - Parameter now: in microseconds since 1970.
    func isExpired(at now: Int64) -> Bool { expiry.map { $0 <= now } ?? false }

    /// - Parameter now: in microseconds since 1970.
    func publication(on topic: String, now: Int64) -> Publication {
        let seconds = expiry.map { expiry in
            UInt32(clamping: max(1, (expiry.subtractingReportingOverflow(now).partialValue + 500_000) / 1_000_000))
        }
        return Publication(
            topic: topic, payload: payload, isRetained: isRetained, contentType: contentType, expiry: seconds,
            userProperties: properties.all)
    }
}
