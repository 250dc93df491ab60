// SPDX-License-Identifier: Apache-2.0
import CCarillonMosquitto

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The MQTT properties of a packet to send, as libmosquitto's list. It frees the list when it is released.
struct PropertyList: ~Copyable {
    /// The head of the list; nil if it is empty.
    private(set) var pointer: OpaquePointer?  // mosquitto_property

    deinit {
        var pointer = pointer
        mosquitto_property_free_all(&pointer)
    }

    mutating func add(_ property: mqtt5_property, _ value: UInt16) throws(MQTTError) {
        try check(mosquitto_property_add_int16(&pointer, Int32(property.rawValue), value))
    }

    mutating func add(_ property: mqtt5_property, _ value: UInt32) throws(MQTTError) {
        try check(mosquitto_property_add_int32(&pointer, Int32(property.rawValue), value))
    }

    /// Adds the identifier of a subscription, which MQTT encodes with a variable length.
    mutating func addSubscription(_ identifier: UInt32) throws(MQTTError) {
        let number = Int32(MQTT_PROP_SUBSCRIPTION_IDENTIFIER.rawValue)
        try check(mosquitto_property_add_varint(&pointer, number, identifier))
    }

    mutating func add(_ property: mqtt5_property, _ value: String) throws(MQTTError) {
        try value.checkForPacket()
        try check(mosquitto_property_add_string(&pointer, Int32(property.rawValue), value))
    }

    mutating func add(_ property: UserProperty) throws(MQTTError) {
        try property.name.checkForPacket()
        try property.value.checkForPacket()
        let number = Int32(MQTT_PROP_USER_PROPERTY.rawValue)
        try check(mosquitto_property_add_string_pair(&pointer, number, property.name, property.value))
    }

    /// Adds the properties of a publication: expiry, content type and user properties.
    mutating func addProperties(of publication: Publication) throws(MQTTError) {
        if let expiry = publication.expiry { try add(MQTT_PROP_MESSAGE_EXPIRY_INTERVAL, expiry) }
        if let contentType = publication.contentType { try add(MQTT_PROP_CONTENT_TYPE, contentType) }
        for property in publication.userProperties { try add(property) }
    }

    /// Passes the list to a function of libmosquitto that takes its ownership if it succeeds. After a failure this list
    /// still owns and frees it.
    mutating func give(_ function: (OpaquePointer?) -> Int32) -> Int32 {
        let code = function(pointer)
        if code == MOSQ_ERR_SUCCESS.rawValue { pointer = nil }
        return code
    }

    private func check(_ code: Int32) throws(MQTTError) {
        guard code == MOSQ_ERR_SUCCESS.rawValue else { throw MQTTError(code, errno: 0) }
    }
}

extension String {
    /// Checks that MQTT can transmit a text. libmosquitto checks less: its C strings end at the first NUL, and some of
    /// its functions take a length that wraps beyond 16 bits.
    func checkForPacket() throws(MQTTError) {
        let bytes = utf8
        guard bytes.count <= Int(UInt16.max), !bytes.contains(0) else { throw MQTTError(.textInvalid) }
        guard mosquitto_validate_utf8(self, Int32(bytes.count)) == MOSQ_ERR_SUCCESS.rawValue else {
            throw MQTTError(.textInvalid)
        }
    }
}

/// The MQTT properties of a received packet. libmosquitto owns them, and frees them when its callback returns. Each
/// member returns nil for a property that the packet lacks.
struct ReceivedProperties {
    /// The head of libmosquitto's list; nil for a packet without properties.
    let pointer: OpaquePointer?  // const mosquitto_property

    func byte(_ property: mqtt5_property) -> UInt8? {
        var value: UInt8 = 0
        guard mosquitto_property_read_byte(pointer, Int32(property.rawValue), &value, false) != nil else { return nil }
        return value
    }

    func number16(_ property: mqtt5_property) -> UInt16? {
        var value: UInt16 = 0
        guard mosquitto_property_read_int16(pointer, Int32(property.rawValue), &value, false) != nil else { return nil }
        return value
    }

    func number32(_ property: mqtt5_property) -> UInt32? {
        var value: UInt32 = 0
        guard mosquitto_property_read_int32(pointer, Int32(property.rawValue), &value, false) != nil else { return nil }
        return value
    }

    /// Returns a text property.
    ///
    /// - Throws: ``InvalidText``.
    func text(_ property: mqtt5_property) throws(InvalidText) -> String? {
        var value: UnsafeMutablePointer<CChar>?
        guard mosquitto_property_read_string(pointer, Int32(property.rawValue), &value, false) != nil else {
            return nil
        }
        defer { free(value) }
        return try InvalidText.check(value)
    }

    /// The broker's reason text and the other broker that it refers to, for an error text. At most 200 characters each,
    /// and without control characters, because the broker is not trusted; nil if it sends neither.
    var explanation: String? {
        let reason = (try? text(MQTT_PROP_REASON_STRING)).flatMap(\.self).map(Self.sanitized)
        let server = (try? text(MQTT_PROP_SERVER_REFERENCE)).flatMap(\.self).map { "use \(Self.sanitized($0))" }
        let parts = [reason, server].compactMap(\.self).filter { !$0.isEmpty }
        return parts.isEmpty ? nil : parts.joined(separator: "; ")
    }

    /// Returns at most 200 characters of a text, without control characters.
    private static func sanitized(_ text: String) -> String {
        String(
            String.UnicodeScalarView(
                text.unicodeScalars.prefix(200).filter { $0.properties.generalCategory != .control }))
    }

    /// The identifiers of the subscriptions that a publication is for.
    var subscriptions: [UInt32] {
        var identifiers: [UInt32] = []
        var last = pointer
        while true {
            var value: UInt32 = 0
            let number = Int32(MQTT_PROP_SUBSCRIPTION_IDENTIFIER.rawValue)
            last = mosquitto_property_read_varint(last, number, &value, !identifiers.isEmpty)
            guard last != nil else { return identifiers }
            identifiers.append(value)
        }
    }

    /// Returns the user properties, in order.
    ///
    /// - Throws: ``InvalidText``.
    func userProperties() throws(InvalidText) -> [UserProperty] {
        var properties: [UserProperty] = []
        var last = pointer
        var isFirst = true
        while true {
            var name: UnsafeMutablePointer<CChar>?
            var value: UnsafeMutablePointer<CChar>?
            let number = Int32(MQTT_PROP_USER_PROPERTY.rawValue)
            last = mosquitto_property_read_string_pair(last, number, &name, &value, !isFirst)
            guard last != nil else { return properties }
            isFirst = false
            defer {
                free(name)
                free(value)
            }
            properties.append(UserProperty(try InvalidText.check(name), try InvalidText.check(value)))
        }
    }
}

/// The error for bytes from the network that are not valid UTF-8.
struct InvalidText: Error {
    /// Returns a C string as a text; an empty text for nil.
    static func check(_ text: UnsafePointer<CChar>?) throws(InvalidText) -> String {
        guard let text else { return "" }
        guard let valid = String(validatingCString: text) else { throw InvalidText() }
        return valid
    }
}
