import BusNames
import CDBus

/// One D-Bus message. Owns libdbus's reference-counted `DBusMessage`.
///
/// Threads: one at a time; libdbus locks a message once it was sent, and it is only read from then on.
public final class Message {
    public enum Kind: Sendable {
        case methodCall
        case methodReturn
        case error
        case signal
    }

    let pointer: OpaquePointer  // DBusMessage

    /// Takes over the caller's reference.
    init(adopting pointer: OpaquePointer) {
        self.pointer = pointer
    }

    init(retaining pointer: OpaquePointer) {
        self.pointer = dbus_message_ref(pointer)
    }

    deinit {
        dbus_message_unref(pointer)
    }

    // MARK: Making

    /// - Parameter startsService: let the bus start the destination by activation when nobody owns it.
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

    /// - Parameter startsService: let the bus start the destination by activation when nobody owns it.
    public static func methodCall(
        to destination: some BusName, path: ObjectPath, interface: InterfaceName, member: MemberName,
        startsService: Bool = true
    ) -> Message {
        methodCall(
            to: AnyBusName(destination), path: path, interface: interface, member: member,
            startsService: startsService)
    }

    /// A signal.
    ///
    /// - Parameter destination: the connection that it is addressed to; nil for a broadcast.
    public static func signal(
        to destination: UniqueName? = nil, path: ObjectPath, interface: InterfaceName, member: MemberName
    ) -> Message {
        let message = Message(
            adopting: allocated(dbus_message_new_signal(path.rawValue, interface.rawValue, member.rawValue)))
        if let destination { check(dbus_message_set_destination(message.pointer, destination.rawValue)) }
        return message
    }

    /// The reply to this method call.
    public func methodReturn() -> Message {
        Message(adopting: allocated(dbus_message_new_method_return(pointer)))
    }

    /// The error reply to this method call.
    public func errorReply(_ error: BusError) -> Message {
        // D-Bus strings hold no NUL and libdbus takes C strings: a NUL ends the message early, which harms nobody.
        Message(adopting: allocated(dbus_message_new_error(pointer, error.name.rawValue, error.message)))
    }

    /// The reply to the call that `caller` gave this serial number.
    static func methodReturn(to caller: UniqueName, serial: UInt32) -> Message {
        answer(DBUS_MESSAGE_TYPE_METHOD_RETURN, to: caller, serial: serial)
    }

    /// The error reply to the call that `caller` gave this serial number.
    static func error(_ error: BusError, to caller: UniqueName, serial: UInt32) -> Message {
        let message = answer(DBUS_MESSAGE_TYPE_ERROR, to: caller, serial: serial)
        check(dbus_message_set_error_name(message.pointer, error.name.rawValue))
        var writer = MessageWriter(message)
        // D-Bus strings hold no NUL and libdbus takes C strings: a NUL ends the message early, which harms nobody.
        writer.append(error.message)
        return message
    }

    private static func answer(_ type: Int32, to caller: UniqueName, serial: UInt32) -> Message {
        let message = Message(adopting: allocated(dbus_message_new(type)))
        check(dbus_message_set_destination(message.pointer, caller.rawValue))
        check(dbus_message_set_reply_serial(message.pointer, serial))
        message.expectsNoReply = true
        return message
    }

    // MARK: Header

    public var kind: Kind? {
        switch dbus_message_get_type(pointer) {
        case DBUS_MESSAGE_TYPE_METHOD_CALL: .methodCall
        case DBUS_MESSAGE_TYPE_METHOD_RETURN: .methodReturn
        case DBUS_MESSAGE_TYPE_ERROR: .error
        case DBUS_MESSAGE_TYPE_SIGNAL: .signal
        default: nil
        }
    }

    /// The connection that sent it, as the bus verified it; nil on a message of the bus itself, or that no bus carried.
    public var sender: UniqueName? { anySender?.unique }
    /// Whether the bus itself sent it. No connection can pretend that (E6).
    public var isFromBus: Bool { anySender == "org.freedesktop.DBus" }
    /// Whether a sender is named at all.
    var hasSender: Bool { dbus_message_get_sender(pointer) != nil }
    private var anySender: AnyBusName? { text(dbus_message_get_sender).map { AnyBusName(unchecked: $0) } }
    public var path: ObjectPath? { text(dbus_message_get_path).map { ObjectPath(unchecked: $0) } }
    public var interface: InterfaceName? { text(dbus_message_get_interface).map { InterfaceName(unchecked: $0) } }
    public var member: MemberName? { text(dbus_message_get_member).map { MemberName(unchecked: $0) } }
    public var errorName: InterfaceName? { text(dbus_message_get_error_name).map { InterfaceName(unchecked: $0) } }
    public var signature: Signature { Signature(unchecked: text(dbus_message_get_signature) ?? "") }
    public var serial: UInt32 { dbus_message_get_serial(pointer) }
    /// The serial of the call that it answers; 0 when it is no answer.
    public var replySerial: UInt32 { dbus_message_get_reply_serial(pointer) }

    public var destination: AnyBusName? { text(dbus_message_get_destination).map { AnyBusName(unchecked: $0) } }

    /// Whether the sender asked not to be answered.
    public var expectsNoReply: Bool {
        get { dbus_message_get_no_reply(pointer) != 0 }
        set { dbus_message_set_no_reply(pointer, newValue ? 1 : 0) }
    }

    /// What it takes on the bus, in bytes. Costs as much as writing it does.
    public var byteCount: Int { withMarshalledBytes(\.count) }

    /// Calls `body` with the bytes that go over a socket. They hold no descriptors.
    func withMarshalledBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var (bytes, count): (UnsafeMutablePointer<CChar>?, Int32) = (nil, 0)
        check(dbus_message_marshal(pointer, &bytes, &count))
        defer { dbus_free(bytes) }
        return try body(UnsafeRawBufferPointer(start: bytes, count: Int(count)))
    }

    /// Whether file descriptors came with it. They stay open as long as the message is there.
    public var hasDescriptors: Bool { dbus_message_contains_unix_fds(pointer) != 0 }

    // These compare without making strings of either kind: they are the tests on every message that arrives.

    public func isSignal(_ interface: InterfaceName, _ member: MemberName) -> Bool {
        dbus_message_get_type(pointer) == DBUS_MESSAGE_TYPE_SIGNAL && hasMember(member) && hasInterface(interface)
    }

    public func hasPath(_ path: ObjectPath) -> Bool {
        path.rawValue.withCString { dbus_message_has_path(pointer, $0) != 0 }
    }

    public func hasInterface(_ interface: InterfaceName) -> Bool {
        interface.rawValue.withCString { dbus_message_has_interface(pointer, $0) != 0 }
    }

    public func hasMember(_ member: MemberName) -> Bool {
        member.rawValue.withCString { dbus_message_has_member(pointer, $0) != 0 }
    }

    public func hasSignature(_ signature: Signature) -> Bool {
        signature.rawValue.withCString { dbus_message_has_signature(pointer, $0) != 0 }
    }

    private func text(_ field: (OpaquePointer?) -> UnsafePointer<CChar>?) -> String? {
        field(pointer).map { String(cString: $0) }
    }
}
