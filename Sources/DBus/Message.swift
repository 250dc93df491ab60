// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames

/// One D-Bus message, received or to be sent. It is stored in one of two forms:
///
/// - A message that this process builds with ``MessageWriter`` is an object of libdbus.
/// - A received message, or a message from ``MessageTemplate``, is its bytes. libdbus creates an object from them only
///   when ``MessageReader`` reads arguments.
///
/// Threads: one at a time. libdbus locks a sent message, which is read-only from then on.
public final class Message {
    public enum Kind: Sendable {
        case methodCall
        case methodReturn
        case error
        case signal
    }

    /// The encoded form; nil for a message that exists only as an object of libdbus.
    let arrived: EncodedMessage?
    /// The object of libdbus, as far as it exists; see ``pointer``.
    private var made: OpaquePointer?
    /// The account of the connection's received bytes, and the size that this message has there until its release.
    private let charged: (to: ReceivedBytes, count: Int)?
    /// The sender of a received message, cached after the first access.
    private var knownSender: UniqueName?
    /// The file descriptors that were received with the message and kept; empty if the connection accepts none.
    let descriptors: [FileDescriptor]

    /// The object of libdbus, a DBusMessage. For received bytes it is created at the first access.
    var pointer: OpaquePointer {
        if let made { return made }
        let pointer = arrived!.demarshalled()
        made = pointer
        return pointer
    }

    /// Takes ownership of the caller's reference to an object of libdbus.
    init(adopting pointer: OpaquePointer) {
        made = pointer
        arrived = nil
        charged = nil
        descriptors = []
    }

    /// Creates a message with a reference of its own to an object of libdbus.
    convenience init(retaining pointer: OpaquePointer) {
        self.init(adopting: dbus_message_ref(pointer))
    }

    /// Creates a message from its encoded bytes.
    ///
    /// - Parameters:
    ///   - bytes: A whole message, as a bus forwards it.
    ///   - header: The header, if it has been parsed.
    ///   - received: The account that contains the size of the message during its lifetime; nil for none.
    ///   - descriptors: The descriptors that were received with the message and kept.
    /// - Returns: nil if the bytes are not a message.
    init?(
        arrived bytes: [UInt8], header: MessageHeader? = nil, charging received: ReceivedBytes? = nil,
        descriptors: [FileDescriptor] = []
    ) {
        arrived = header.map { EncodedMessage(bytes, $0) } ?? EncodedMessage(bytes)
        self.descriptors = descriptors
        charged = received.map { ($0, bytes.count) }
        if arrived == nil {
            guard let pointer = EncodedMessage.demarshalled(bytes) else { return nil }
            made = pointer
        }
        received?.add(bytes.count)
    }

    deinit {
        if let charged { charged.to.add(-charged.count) }
        if let made { dbus_message_unref(made) }
    }

    /// Sets the serial of a message without one, in each form that exists.
    func number(_ serial: UInt32) {
        if let made { dbus_message_set_serial(made, serial) }
        arrived?.number(serial)
    }

    // MARK: Creation

    /// Returns a method call without arguments, for a ``MessageWriter`` to append them.
    ///
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

    /// Returns a method call without arguments, for a ``MessageWriter`` to append them.
    ///
    /// - Parameter startsService: Whether the bus starts the destination by activation if its name has no owner.
    public static func methodCall(
        to destination: some BusName, path: ObjectPath, interface: InterfaceName, member: MemberName,
        startsService: Bool = true
    ) -> Message {
        methodCall(
            to: AnyBusName(destination), path: path, interface: interface, member: member,
            startsService: startsService)
    }

    /// Returns a signal without arguments, for a ``MessageWriter`` to append them.
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

    /// Returns a reply of this message type, which itself requests no reply.
    private static func answer(_ type: Int32, to caller: UniqueName?, serial: UInt32) -> Message {
        let message = Message(adopting: allocated(dbus_message_new(type)))
        if let caller { check(dbus_message_set_destination(message.pointer, caller.rawValue)) }
        check(dbus_message_set_reply_serial(message.pointer, serial))
        message.expectsNoReply = true
        return message
    }

    // MARK: Header

    private var type: Int32 { arrived.map { Int32($0.header.type) } ?? dbus_message_get_type(pointer) }

    /// The kind; nil for a type that the D-Bus specification does not define.
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
    /// The content of the sender field, which is the bus's own name in messages of the bus.
    private var anySender: AnyBusName? {
        text({ $0.sender }, dbus_message_get_sender).map { AnyBusName(unchecked: $0) }
    }
    public var path: ObjectPath? { text({ $0.path }, dbus_message_get_path).map { ObjectPath(unchecked: $0) } }
    public var interface: InterfaceName? {
        text({ $0.interface }, dbus_message_get_interface).map { InterfaceName(unchecked: $0) }
    }
    public var member: MemberName? { text({ $0.member }, dbus_message_get_member).map { MemberName(unchecked: $0) } }
    /// The name of the error; nil for a message other than an error.
    public var errorName: InterfaceName? {
        text({ $0.errorName }, dbus_message_get_error_name).map { InterfaceName(unchecked: $0) }
    }
    public var signature: Signature {
        Signature(unchecked: text({ $0.signature }, dbus_message_get_signature) ?? "")
    }
    /// The number of the message among those of its sender; 0 before it is sent.
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
            arrived?.setNoReplyExpected(newValue)
        }
    }

    /// The size of the encoded message, in bytes. An object of libdbus has to be encoded for it.
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

    /// Calls `body` with the bytes that libdbus encodes from its object.
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
        // Only replies keep their descriptors.
        guard arrived.header.type == UInt8(DBUS_MESSAGE_TYPE_METHOD_RETURN), hasSignature("h"),
            descriptors.indices.contains(index)
        else { return FileDescriptor(adopting: -1) }
        return descriptors[index]
    }

    // The following tests run on each received message, so they compare without creating strings.

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

    /// Returns a header field from the form that the message has.
    ///
    /// - Parameters:
    ///   - field: Returns the field's range in the encoded form.
    ///   - made: Returns the field of the object of libdbus.
    private func text(
        _ field: (MessageHeader) -> Range<Int>?, _ made: (OpaquePointer?) -> UnsafePointer<CChar>?
    ) -> String? {
        if let arrived { return arrived.text(field(arrived.header)) }
        return made(pointer).map { String(cString: $0) }
    }
}
