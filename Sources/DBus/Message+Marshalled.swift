import BusNames
import CDBus

/// Messages from bytes and back, for what is sent many times with little difference.
///
/// Appending values one by one costs libdbus a rewrite of the header for each, as the signature in it grows. What is
/// known to be good goes to the socket as it was laid out (``MarshalledMessage``); other bytes libdbus validates like any
/// that arrive.
extension Message {
    /// The marshalled arguments, in this machine's byte order.
    public var marshalledBody: [UInt8] { withMarshalledBody { Array($0) } }

    /// Calls `body` with the marshalled arguments, in this machine's byte order, which are valid only inside of it. Of a
    /// message that arrived nobody may have looked at them yet: ``MarshalledReader``.
    public func withMarshalledBody<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        if let arrived, !arrived.header.isSwapped {
            return try withMarshalledBytes { message throws(Failure) in
                try body(UnsafeRawBufferPointer(rebasing: message[arrived.header.body]))
            }
        }
        // Reading the first value makes libdbus swap a message that came in the other byte order.
        var iterator = DBusMessageIter()
        dbus_message_iter_init(pointer, &iterator)
        return try withLibraryBytes { message throws(Failure) in
            let length = Int(message.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
            return try body(UnsafeRawBufferPointer(rebasing: message[(message.count - length)...]))
        }
    }

    /// A signal to one connection with these marshalled arguments.
    ///
    /// - Returns: nil when `body` does not hold values of exactly the types in `signature`.
    public static func signal(
        to destination: UniqueName, path: ObjectPath, interface: InterfaceName, member: MemberName, serial: UInt32,
        signature: Signature, body: [UInt8]
    ) -> Message? {
        let form = MessageForm.signal(path: path, interface: interface, member: member, signature: signature)
        return Message(
            checking: form.message(to: destination, serial: serial, size: body.count) { $0.append(bytes: body) })
    }

    /// - Parameter message: holds values of exactly the types in its signature.
    public convenience init(_ message: MarshalledMessage) {
        let pointer = Self.demarshalled(message)
        precondition(pointer != nil, "bytes that are known to be good are")
        self.init(adopting: pointer!)
    }

    private convenience init?(checking message: MarshalledMessage) {
        guard let pointer = Self.demarshalled(message) else { return nil }
        self.init(adopting: pointer)
    }

    fileprivate static func demarshalled(_ message: MarshalledMessage) -> OpaquePointer? {
        var error = DBusError()
        dbus_error_init(&error)
        defer { dbus_error_free(&error) }
        var bytes = message.bytes
        // libdbus takes no message without a number, and gives it one.
        if message.serial == 0 { bytes[MarshalledMessage.serialOffset] = 1 }
        let pointer = bytes.withUnsafeBytes { bytes in
            dbus_message_demarshal(bytes.baseAddress!.assumingMemoryBound(to: CChar.self), Int32(bytes.count), &error)
        }
        if let pointer, message.serial == 0 { dbus_message_set_serial(pointer, 0) }
        return pointer
    }
}

/// A message as the bytes that go over a socket.
public struct MarshalledMessage {
    let bytes: [UInt8]
    /// The connection that it goes to.
    public let destination: UniqueName
    /// 0 when it gets the next number of the connection that sends it.
    let serial: UInt32

    /// Where the serial stands.
    static let serialOffset = 8

    /// Whether libdbus would take it, where it arrives. Costs as much as that.
    var isValid: Bool { Message.demarshalled(self).map { Message(adopting: $0) } != nil }
}

/// What is the same in all messages of one kind: most of the header.
public struct MessageForm: Sendable {
    /// Up to where the receiver comes.
    private let start: [UInt8]
    /// Where the lengths stand, and where the fields begin.
    private static let (bodyLength, fieldsLength, fields) = (4, 12, 16)
    private static let byteOrderMark = UInt8(ascii: 1.littleEndian == 1 ? "l" : "B")

    /// Signals of one kind.
    public static func signal(
        path: ObjectPath, interface: InterfaceName, member: MemberName, signature: Signature
    ) -> MessageForm {
        MessageForm(type: DBUS_MESSAGE_TYPE_SIGNAL, signature) { header in
            header.append(field: DBUS_HEADER_FIELD_PATH, .objectPath) { $0.append(path.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_INTERFACE, .string) { $0.append(interface.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_MEMBER, .string) { $0.append(member.rawValue) }
        }
    }

    /// Answers of one kind.
    public static func methodReturn(signature: Signature) -> MessageForm {
        MessageForm(type: DBUS_MESSAGE_TYPE_METHOD_RETURN, signature) { _ in }
    }

    private init(type: Int32, _ signature: Signature, _ moreFields: (inout MarshalledBytes) -> Void) {
        var header = MarshalledBytes(capacity: 256)
        header.append(Self.byteOrderMark)
        header.append(UInt8(type))
        header.append(UInt8(DBUS_HEADER_FLAG_NO_REPLY_EXPECTED))
        header.append(UInt8(DBUS_MAJOR_PROTOCOL_VERSION))
        // The two lengths, with the serial between them.
        for _ in 0..<3 { header.append(UInt32(0)) }
        moreFields(&header)
        header.append(field: DBUS_HEADER_FIELD_SIGNATURE, .signature) { $0.append(signature: signature.rawValue) }
        start = header.bytes
    }

    /// A message of this form to one connection.
    ///
    /// - Parameters:
    ///   - serial: of the message; 0 for the next number of the connection that sends it.
    ///   - call: the serial of the call that it answers; nil for what is no answer.
    ///   - size: of its arguments, in bytes, about.
    ///   - arguments: appends values of exactly the types in the signature.
    public func message(
        to destination: UniqueName, serial: UInt32 = 0, answering call: UInt32? = nil, size: Int,
        arguments: (inout MarshalledBytes) -> Void
    ) -> MarshalledMessage {
        var message = MarshalledBytes(continuing: start, reserving: 64 + size)
        message.append(field: DBUS_HEADER_FIELD_DESTINATION, .string) { $0.append(destination.rawValue) }
        if let call {
            message.append(field: DBUS_HEADER_FIELD_REPLY_SERIAL, .uint32) { $0.append(call) }
        }
        message.set(UInt32(message.bytes.count - Self.fields), at: Self.fieldsLength)
        message.align(to: 8)
        let body = message.bytes.count
        arguments(&message)
        message.set(UInt32(message.bytes.count - body), at: Self.bodyLength)
        message.set(serial, at: MarshalledMessage.serialOffset)
        return MarshalledMessage(bytes: message.bytes, destination: destination, serial: serial)
    }
}

/// Bytes of values as D-Bus aligns them, in this machine's byte order.
public struct MarshalledBytes {
    public fileprivate(set) var bytes: [UInt8]

    init(capacity: Int) {
        bytes = []
        bytes.reserveCapacity(capacity)
    }

    /// Goes on behind `bytes`, which begin where D-Bus would align to 8.
    public init(continuing bytes: [UInt8], reserving more: Int) {
        self.bytes = []
        self.bytes.reserveCapacity(bytes.count + more)
        self.bytes += bytes
    }

    public mutating func append(_ value: UInt8) { bytes.append(value) }
    public mutating func append(_ value: UInt32) { append(integer: value) }
    public mutating func append(_ value: UInt64) { append(integer: value) }

    public mutating func append(_ text: String) {
        append(UInt32(text.utf8.count))
        bytes += text.utf8
        bytes.append(0)
    }

    /// An array `at`.
    public mutating func append(_ values: [UInt64]) {
        append(UInt32(8 * values.count))
        align(to: 8)
        values.withUnsafeBytes { bytes += $0 }
    }

    /// Values that are laid out already, for a place that D-Bus would align to 8.
    public mutating func append(bytes more: [UInt8]) {
        align(to: 8)
        bytes += more
    }

    fileprivate mutating func append(signature: String) {
        bytes.append(UInt8(signature.utf8.count))
        bytes += signature.utf8
        bytes.append(0)
    }

    fileprivate mutating func append(
        field code: Int32, _ type: TypeCode, _ value: (inout MarshalledBytes) -> Void
    ) {
        align(to: 8)
        append(UInt8(code))
        append(signature: String(type.letter))
        value(&self)
    }

    fileprivate mutating func set(_ value: UInt32, at offset: Int) {
        withUnsafeBytes(of: value) { bytes.replaceSubrange(offset..<offset + 4, with: $0) }
    }

    fileprivate mutating func align(to alignment: Int) {
        while bytes.count % alignment != 0 { bytes.append(0) }
    }

    private mutating func append<Value: FixedWidthInteger>(integer value: Value) {
        align(to: MemoryLayout<Value>.size)
        withUnsafeBytes(of: value) { bytes += $0 }
    }
}
