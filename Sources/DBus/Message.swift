// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames

/// One D-Bus message: an object of libdbus, or received bytes, from which libdbus creates its object when arguments are
/// read.
///
/// Threads: one at a time. libdbus locks a sent message, which is read-only from then on.
public final class Message {
    public enum Kind: Sendable {
        case methodCall
        case methodReturn
        case error
        case signal
    }

    /// The encoded form; nil for a message that was neither received nor encoded in this process.
    let arrived: ArrivedMessage?
    private var made: OpaquePointer?
    private let charged: (to: ReceivedBytes, count: Int)?
    /// The sender of a received message, cached after the first access.
    private var knownSender: UniqueName?
    /// The descriptors that were received with the message and kept.
    let descriptors: [FileDescriptor]

    /// The object of libdbus, a DBusMessage. For received bytes it is created at the first access.
    var pointer: OpaquePointer {
        if let made { return made }
        let pointer = arrived!.demarshalled()
        made = pointer
        return pointer
    }

    /// Takes ownership of the caller's reference.
    init(adopting pointer: OpaquePointer) {
        made = pointer
        arrived = nil
        charged = nil
        descriptors = []
    }

    convenience init(retaining pointer: OpaquePointer) {
        self.init(adopting: dbus_message_ref(pointer))
    }

    /// - Parameters:
    ///   - bytes: A whole message, as a bus forwards it.
    ///   - header: The header, if it has been parsed.
    ///   - received: Accounts for the bytes during the lifetime of the message.
    ///   - descriptors: The descriptors that were received with the message and kept.
    /// - Returns: nil if the bytes are not a message.
    init?(
        arrived bytes: [UInt8], header: MessageHeader? = nil, charging received: ReceivedBytes? = nil,
        descriptors: [FileDescriptor] = []
    ) {
        arrived = header.map { ArrivedMessage(bytes, $0) } ?? ArrivedMessage(bytes)
        self.descriptors = descriptors
        charged = received.map { ($0, bytes.count) }
        if arrived == nil {
            guard let pointer = ArrivedMessage.demarshalled(bytes) else { return nil }
            made = pointer
        }
        received?.add(bytes.count)
    }

    deinit {
        if let charged { charged.to.add(-charged.count) }
        if let made { dbus_message_unref(made) }
    }

    /// Sets the serial of a message without one.
    func number(_ serial: UInt32) {
        if let made { dbus_message_set_serial(made, serial) }
        arrived?.number(serial)
    }

    // MARK: Creation

    /// - Parameter startsService: Whether the bus starts the destination by activation if its name has no owner.
    public static func methodCall(
        to destination: AnyBusName, path: ObjectPath, interface: InterfaceName, member: MemberName,
        startsService: Bool = true
    ) -> Message {
        let message = Message(
            adopting: allocated(
                dbus_message_new_method_call(
                    destination.rawValue, path.rawValue, interface.rawValue, member.rawValue)))
        dbus_message_set_auto_start(message.pointer, startsService ? 1 : 0)
        return message
    }

    /// - Parameter startsService: Whether the bus starts the destination by activation if its name has no owner.
    public static func methodCall(
        to destination: some BusName, path: ObjectPath, interface: InterfaceName, member: MemberName,
        startsService: Bool = true
    ) -> Message {
        methodCall(
            to: AnyBusName(destination), path: path, interface: interface, member: member,
            startsService: startsService)
    }

    /// Returns a signal.
    ///
    /// - Parameter destination: The receiving connection; nil for a broadcast.
    public static func signal(
        to destination: UniqueName? = nil, path: ObjectPath, interface: InterfaceName, member: MemberName
    ) -> Message {
        let message = Message(
            adopting: allocated(dbus_message_new_signal(path.rawValue, interface.rawValue, member.rawValue)))
        if let destination { check(dbus_message_set_destination(message.pointer, destination.rawValue)) }
        return message
    }

    /// Returns the reply to this method call.
    public func methodReturn() -> Message {
        Self.answer(DBUS_MESSAGE_TYPE_METHOD_RETURN, to: sender, serial: serial)
    }

    /// Returns the error reply to this method call.
    public func errorReply(_ error: BusError) -> Message { .error(error, to: sender, serial: serial) }

    /// Returns the reply to the call with this serial of `caller`.
    static func methodReturn(to caller: UniqueName, serial: UInt32) -> Message {
        answer(DBUS_MESSAGE_TYPE_METHOD_RETURN, to: caller, serial: serial)
    }

    /// Returns the error reply to the call with this serial of `caller`.
    static func error(_ error: BusError, to caller: UniqueName?, serial: UInt32) -> Message {
        let message = answer(DBUS_MESSAGE_TYPE_ERROR, to: caller, serial: serial)
        check(dbus_message_set_error_name(message.pointer, error.name.rawValue))
        var writer = MessageWriter(message)
        writer.append(error.message)
        return message
    }

    private static func answer(_ type: Int32, to caller: UniqueName?, serial: UInt32) -> Message {
        let message = Message(adopting: allocated(dbus_message_new(type)))
        if let caller { check(dbus_message_set_destination(message.pointer, caller.rawValue)) }
        check(dbus_message_set_reply_serial(message.pointer, serial))
        message.expectsNoReply = true
        return message
    }

    // MARK: Header

    private var type: Int32 { arrived.map { Int32($0.header.type) } ?? dbus_message_get_type(pointer) }

    public var kind: Kind? {
        switch type {
        case DBUS_MESSAGE_TYPE_METHOD_CALL: .methodCall
        case DBUS_MESSAGE_TYPE_METHOD_RETURN: .methodReturn
        case DBUS_MESSAGE_TYPE_ERROR: .error
        case DBUS_MESSAGE_TYPE_SIGNAL: .signal
        default: nil
        }
    }

    /// The sending connection as verified by the bus; nil for a message of the bus itself, or without a bus.
    public var sender: UniqueName? {
        if let knownSender { return knownSender }
        let sender = anySender?.unique
        // The sender of a received message is immutable.
        if arrived != nil { knownSender = sender }
        return sender
    }
    /// Whether the bus itself sent the message. No connection can forge that (E6).
    public var isFromBus: Bool {
        let name = "org.freedesktop.DBus"
        if let arrived { return arrived.has(arrived.header.sender, name) }
        return dbus_message_has_sender(pointer, name) != 0
    }
    /// Whether the message has a sender field.
    var hasSender: Bool { arrived.map { $0.header.sender != nil } ?? (dbus_message_get_sender(pointer) != nil) }
    private var anySender: AnyBusName? {
        text({ $0.sender }, dbus_message_get_sender).map { AnyBusName(unchecked: $0) }
    }
    public var path: ObjectPath? { text({ $0.path }, dbus_message_get_path).map { ObjectPath(unchecked: $0) } }
    public var interface: InterfaceName? {
        text({ $0.interface }, dbus_message_get_interface).map { InterfaceName(unchecked: $0) }
    }
    public var member: MemberName? { text({ $0.member }, dbus_message_get_member).map { MemberName(unchecked: $0) } }
    public var errorName: InterfaceName? {
        text({ $0.errorName }, dbus_message_get_error_name).map { InterfaceName(unchecked: $0) }
    }
    public var signature: Signature {
        Signature(unchecked: text({ $0.signature }, dbus_message_get_signature) ?? "")
    }
    public var serial: UInt32 { arrived?.header.serial ?? dbus_message_get_serial(pointer) }
    /// The serial of the answered call; 0 for other messages.
    public var replySerial: UInt32 { arrived?.header.replySerial ?? dbus_message_get_reply_serial(pointer) }

    public var destination: AnyBusName? {
        text({ $0.destination }, dbus_message_get_destination).map { AnyBusName(unchecked: $0) }
    }

    /// Whether the sender requests no reply. It can be set on messages created in this process.
    public var expectsNoReply: Bool {
        get {
            arrived.map { Int32($0.header.flags) & DBUS_HEADER_FLAG_NO_REPLY_EXPECTED != 0 }
                ?? (dbus_message_get_no_reply(pointer) != 0)
        }
        set {
            if let made { dbus_message_set_no_reply(made, newValue ? 1 : 0) }
            arrived?.wantNoReply(newValue)
        }
    }

    /// The size on the bus, in bytes. For a message that was not received it costs a full encoding.
    public var byteCount: Int { withMarshalledBytes(\.count) }

    /// Calls `body` with the encoded bytes for a socket, without descriptors.
    func withMarshalledBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        if let arrived {
            // The standard library's function does not preserve the error type.
            let result: Swift.Result<Result, Failure> = arrived.bytes.withUnsafeBytes { bytes in
                do throws(Failure) { return .success(try body(bytes)) } catch { return .failure(error) }
            }
            return try result.get()
        }
        return try withLibraryBytes(body)
    }

    /// Calls `body` with the encoding of libdbus.
    func withLibraryBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var (bytes, count): (UnsafeMutablePointer<CChar>?, Int32) = (nil, 0)
        check(dbus_message_marshal(pointer, &bytes, &count))
        defer { dbus_free(bytes) }
        return try body(UnsafeRawBufferPointer(start: bytes, count: Int(count)))
    }

    /// Whether the message has file descriptors, or arrived with descriptors that were closed.
    public var hasDescriptors: Bool {
        arrived.map { $0.header.descriptorCount != nil } ?? (dbus_message_contains_unix_fds(pointer) != 0)
    }

    /// The only argument of a received message, if it is a descriptor that was kept; an invalid descriptor otherwise.
    /// Nil for a message created in this process.
    var arrivedDescriptor: FileDescriptor? {
        guard let arrived else { return nil }
        let index = withMarshalledBody { body in
            body.count == 4 ? Int(body.loadUnaligned(as: UInt32.self)) : Int.max
        }
        guard arrived.header.type == UInt8(DBUS_MESSAGE_TYPE_METHOD_RETURN), hasSignature("h"),
            descriptors.indices.contains(index)
        else { return FileDescriptor(adopting: -1) }
        return descriptors[index]
    }

    // These tests run on each received message, so they compare without creating strings.

    public func isSignal(_ interface: InterfaceName, _ member: MemberName) -> Bool {
        type == DBUS_MESSAGE_TYPE_SIGNAL && hasMember(member) && hasInterface(interface)
    }

    public func hasPath(_ path: ObjectPath) -> Bool {
        if let arrived { return arrived.has(arrived.header.path, path.rawValue) }
        return path.rawValue.withCString { dbus_message_has_path(pointer, $0) != 0 }
    }

    public func hasInterface(_ interface: InterfaceName) -> Bool {
        if let arrived { return arrived.has(arrived.header.interface, interface.rawValue) }
        return interface.rawValue.withCString { dbus_message_has_interface(pointer, $0) != 0 }
    }

    public func hasMember(_ member: MemberName) -> Bool {
        if let arrived { return arrived.has(arrived.header.member, member.rawValue) }
        return member.rawValue.withCString { dbus_message_has_member(pointer, $0) != 0 }
    }

    public func hasSignature(_ signature: Signature) -> Bool {
        if let arrived {
            guard let field = arrived.header.signature else { return signature.rawValue.isEmpty }
            return arrived.has(field, signature.rawValue)
        }
        return signature.rawValue.withCString { dbus_message_has_signature(pointer, $0) != 0 }
    }

    private func text(
        _ field: (MessageHeader) -> Range<Int>?, _ made: (OpaquePointer?) -> UnsafePointer<CChar>?
    ) -> String? {
        if let arrived { return arrived.text(field(arrived.header)) }
        return made(pointer).map { String(cString: $0) }
    }
}
