// SPDX-License-Identifier: Apache-2.0
import CCarillonMosquitto

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Passes the settings and the callbacks of a connection to libmosquitto.
extension LibraryHandle {
    /// Initializes libmosquitto once in the process.
    private static let library: Void = { _ = mosquitto_lib_init() }()

    /// Creates a client object of libmosquitto with all settings except the files of TLS and the connection's
    /// properties.
    ///
    /// - Parameter startsClean: whether the broker is to discard its session of this client.
    static func makeClient(
        _ settings: MQTTClient.Settings, startsClean: Bool
    ) throws(MQTTError) -> OpaquePointer {
        _ = library
        try settings.check()
        guard let handle = mosquitto_new(settings.clientID, startsClean, nil) else {
            throw MQTTError(.settingsInvalid, "the client identifier")
        }
        do throws(MQTTError) {
            try set(settings, of: handle)
        } catch {
            mosquitto_destroy(handle)
            throw error
        }
        return handle
    }

    /// Passes the settings to libmosquitto.
    private static func set(_ settings: MQTTClient.Settings, of handle: OpaquePointer) throws(MQTTError) {
        try check(mosquitto_int_option(handle, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5))
        try check(mosquitto_int_option(handle, MOSQ_OPT_SEND_MAXIMUM, Int32(settings.sendMaximum)))
        // Otherwise Nagle's algorithm would delay an acknowledgment, a small packet, until the one before has arrived.
        try check(mosquitto_int_option(handle, MOSQ_OPT_TCP_NODELAY, 1))
        if settings.userName != nil || settings.password != nil {
            try check(mosquitto_username_pw_set(handle, settings.userName, settings.password))
        }
        if settings.tls != nil, settings.tls?.authorityFile == nil {
            try check(mosquitto_int_option(handle, MOSQ_OPT_TLS_USE_OS_CERTS, 1))
        }
        guard let will = settings.will else { return }
        var properties = PropertyList()
        try properties.addProperties(of: will)
        if settings.willDelay > 0 { try properties.add(MQTT_PROP_WILL_DELAY_INTERVAL, settings.willDelay) }
        let code = will.payload.withUnsafeBytes { payload in
            properties.give {
                mosquitto_will_set_v5(
                    handle, will.topic, Int32(payload.count), payload.baseAddress, will.quality.rawValue,
                    will.isRetained, $0)
            }
        }
        guard code != MOSQ_ERR_INVAL.rawValue else { throw MQTTError(.topicInvalid, will.topic) }
        try check(code)
    }

    /// Throws the error for a result of libmosquitto that is no success.
    private static func check(_ code: Int32) throws(MQTTError) {
        guard code == MOSQ_ERR_SUCCESS.rawValue else { throw MQTTError(code, errno: errno) }
    }

    /// Passes the files of TLS to libmosquitto. Each file is opened first, because libmosquitto does not report which
    /// file can't be read.
    func setFiles(_ settings: MQTTClient.Settings) throws(MQTTError) {
        guard let tls = settings.tls else { return }
        for path in [tls.authorityFile, tls.certificateFile, tls.keyFile] {
            guard let path else { continue }
            let descriptor = open(path, O_RDONLY | O_CLOEXEC)
            guard descriptor >= 0 else { throw MQTTError(.system(errno), path) }
            close(descriptor)
        }
        let code = mosquitto_tls_set(
            pointer, tls.authorityFile,
            // libmosquitto requires a file or a directory, even if the certificates of the system are to be used.
            tls.authorityFile == nil ? "/etc/ssl/certs" : nil,
            // The callback gives no passphrase. Without it OpenSSL would ask for one at the terminal.
            tls.certificateFile, tls.keyFile, { _, _, _, _ in 0 })
        try Self.check(code)
    }

    /// Passes the properties of the CONNECT packet to libmosquitto: session expiry, receive maximum, maximum packet
    /// size.
    ///
    /// libmosquitto has no function that connects with properties and does not block. Its blocking function stores the
    /// properties before it checks its other arguments. The invalid port -1 makes it return `MOSQ_ERR_INVAL` after
    /// that. If another version behaved differently, tests would fail: without these properties the broker discards the
    /// session with the connection.
    func setProperties(_ settings: MQTTClient.Settings) throws(MQTTError) {
        var properties = PropertyList()
        try properties.add(MQTT_PROP_SESSION_EXPIRY_INTERVAL, settings.sessionExpiry)
        try properties.add(MQTT_PROP_RECEIVE_MAXIMUM, settings.receiveMaximum)
        if let most = settings.maximumPacketSize { try properties.add(MQTT_PROP_MAXIMUM_PACKET_SIZE, most) }
        let code = mosquitto_connect_bind_v5(
            pointer, settings.host, -1, Int32(settings.keepAlive), nil, properties.pointer)
        guard code == MOSQ_ERR_INVAL.rawValue else { throw MQTTError(.library(code)) }
    }

    /// Sets the callbacks of libmosquitto, each of which calls the driver or appends an event to its queue. Bit 0 of
    /// the flags of an accepted connection states whether the broker still had the session.
    func setCallbacks() {
        mosquitto_connect_v5_callback_set(pointer) { _, data, reason, flags, properties in
            LibraryHandle.driver(data)?.answered(
                ReasonCode(rawValue: UInt8(truncatingIfNeeded: reason)), sessionPresent: flags & 1 != 0,
                ReceivedProperties(pointer: properties))
        }
        mosquitto_disconnect_v5_callback_set(pointer) { _, data, code, properties in
            let failure = errno
            LibraryHandle.driver(data)?.disconnected(
                code, errno: failure, ReceivedProperties(pointer: properties))
        }
        mosquitto_message_v5_callback_set(pointer) { _, data, message, properties in
            LibraryHandle.driver(data)?.received(message!.pointee, ReceivedProperties(pointer: properties))
        }
        mosquitto_publish_v5_callback_set(pointer) { _, data, number, reason, _ in
            let reason = ReasonCode(rawValue: UInt8(truncatingIfNeeded: reason))
            LibraryHandle.driver(data)?.events.append(.acknowledged(PacketID(number), reason))
        }
        mosquitto_subscribe_v5_callback_set(pointer) { _, data, number, count, granted, _ in
            let reasons = UnsafeBufferPointer(start: granted, count: Int(count)).map {
                ReasonCode(rawValue: UInt8(truncatingIfNeeded: $0))
            }
            LibraryHandle.driver(data)?.subscribed(PacketID(number), reasons)
        }
        mosquitto_unsubscribe_v5_callback_set(pointer) { _, data, number, _ in
            LibraryHandle.driver(data)?.events.append(.unsubscribed(PacketID(number)))
        }
    }

    /// Returns the driver of the handle that libmosquitto passes to a callback; nil if the driver was abandoned.
    private static func driver(_ data: UnsafeMutableRawPointer?) -> ClientDriver? {
        Unmanaged<LibraryHandle>.fromOpaque(data!).takeUnretainedValue().driver
    }
}

/// The check of the settings.
extension MQTTClient.Settings {
    /// Checks the settings, as far as libmosquitto does not.
    fileprivate func check() throws(MQTTError) {
        for text in [host, clientID, userName, password, will?.topic] { try text?.checkForPacket() }
        guard !clientID.isEmpty else { throw MQTTError(.settingsInvalid, "the client identifier is empty") }
        guard !host.isEmpty else { throw MQTTError(.settingsInvalid, "the host is empty") }
        guard connectTimeout > 0 else { throw MQTTError(.settingsInvalid, "the connect timeout is not positive") }
        guard port != 0 else { throw MQTTError(.settingsInvalid, "port 0") }
        guard keepAlive == 0 || keepAlive >= 5 else {
            throw MQTTError(.settingsInvalid, "a keep-alive time below 5 s")
        }
        guard receiveMaximum > 0, sendMaximum > 0 else {
            throw MQTTError(.settingsInvalid, "a maximum of 0 publications")
        }
        guard maximumPacketSize != 0 else { throw MQTTError(.settingsInvalid, "a maximum of 0 bytes") }
        guard (tls?.certificateFile == nil) == (tls?.keyFile == nil) else {
            throw MQTTError(.settingsInvalid, "a certificate and its key go together")
        }
    }
}

/// The identifier as libmosquitto's functions return it.
extension PacketID {
    /// Creates an identifier from libmosquitto's number, which is in the range of 16 bits.
    init(_ number: Int32) { self.init(rawValue: UInt16(truncatingIfNeeded: number)) }
}

/// The options of a filter, which all filters of one SUBSCRIBE packet of libmosquitto share.
extension TopicFilter {
    /// The options as flags of libmosquitto.
    var options: Int32 {
        var options: UInt32 = 0
        if excludesOwn { options |= MQTT_SUB_OPT_NO_LOCAL.rawValue }
        if keepsRetainFlag { options |= MQTT_SUB_OPT_RETAIN_AS_PUBLISHED.rawValue }
        switch retainHandling {
        case .always: options |= MQTT_SUB_OPT_SEND_RETAIN_ALWAYS.rawValue
        case .ifNew: options |= MQTT_SUB_OPT_SEND_RETAIN_NEW.rawValue
        case .never: options |= MQTT_SUB_OPT_SEND_RETAIN_NEVER.rawValue
        }
        return Int32(options)
    }

    /// Whether both filters have the same quality of service, flags and identifier, and so fit into the same packet.
    func hasOptions(of other: TopicFilter) -> Bool {
        quality == other.quality && options == other.options && identifier == other.identifier
    }
}

/// The limits as the CONNACK packet announces them.
extension BrokerLimits {
    /// Reads the limits from the properties of a CONNACK packet.
    init(_ properties: ReceivedProperties) {
        self.init(
            receiveMaximum: properties.number16(MQTT_PROP_RECEIVE_MAXIMUM) ?? .max,
            maximumPacketSize: properties.number32(MQTT_PROP_MAXIMUM_PACKET_SIZE),
            maximumQuality: properties.byte(MQTT_PROP_MAXIMUM_QOS) == 0 ? .atMostOnce : .atLeastOnce,
            retainAvailable: properties.byte(MQTT_PROP_RETAIN_AVAILABLE) != 0,
            wildcardsAvailable: properties.byte(MQTT_PROP_WILDCARD_SUB_AVAILABLE) != 0,
            identifiersAvailable: properties.byte(MQTT_PROP_SUBSCRIPTION_ID_AVAILABLE) != 0,
            keepAlive: properties.number16(MQTT_PROP_SERVER_KEEP_ALIVE),
            sessionExpiry: properties.number32(MQTT_PROP_SESSION_EXPIRY_INTERVAL))
    }

    /// The size of the largest packet, in bytes.
    var maxBytes: Int { min(maximumPacketSize.map(Int.init) ?? .max, Publication.maxRemainingLength + 5) }
}

/// Conversions between a publication and libmosquitto's packets.
extension Publication {
    /// Creates a publication from a received one.
    init(_ message: mosquitto_message, _ properties: ReceivedProperties) throws(InvalidText) {
        self.init(
            topic: try InvalidText.check(message.topic),
            payload: Array(UnsafeRawBufferPointer(start: message.payload, count: Int(message.payloadlen))),
            quality: message.qos == 0 ? .atMostOnce : .atLeastOnce,
            isRetained: message.retain,
            contentType: try properties.text(MQTT_PROP_CONTENT_TYPE),
            expiry: properties.number32(MQTT_PROP_MESSAGE_EXPIRY_INTERVAL),
            userProperties: try properties.userProperties(), subscriptions: properties.subscriptions)
    }

    /// The maximum "remaining length" of an MQTT packet, in bytes: its length without the fixed header.
    static let maxRemainingLength = 268_435_455

    /// The size of its packet, in bytes, fixed header included. Computed here because libmosquitto computes a slightly
    /// smaller size: it accepts a packet that it then can't send, keeps it, and tries it again on each connection.
    var packetSize: Int {
        var properties = 0
        if expiry != nil { properties += 5 }
        if let contentType { properties += 3 + contentType.utf8.count }
        for property in userProperties { properties += 5 + property.name.utf8.count + property.value.utf8.count }
        let rest =
            2 + topic.utf8.count + (quality == .atMostOnce ? 0 : 2) + Self.lengthSize(properties) + properties
            + payload.count
        return 1 + Self.lengthSize(rest) + rest
    }

    /// The number of bytes in which MQTT encodes a length.
    private static func lengthSize(_ length: Int) -> Int {
        switch length {
        case ..<128: 1
        case ..<16_384: 2
        case ..<2_097_152: 3
        default: 4
        }
    }
}
