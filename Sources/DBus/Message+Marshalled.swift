// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames

/// Encoded arguments of messages, and messages from encoded bytes: for high volume, such as notifications to many
/// clients.
///
/// Appending values one by one makes libdbus rewrite the header for each value, since the signature in it grows.
/// Therefore this module has an encoder of its own, ``MarshalledBytes``. Bytes of that encoder go to the socket
/// unchanged (``MarshalledMessage``); libdbus validates all other bytes like received ones.
extension Message {
    /// The encoded arguments, in this machine's byte order.
    public var marshalledBody: [UInt8] { withMarshalledBody { Array($0) } }

    /// Calls `body` with the encoded arguments, in this machine's byte order. They are valid only inside `body`, and
    /// unchecked in a received message: see ``MarshalledReader``.
    public func withMarshalledBody<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        if let arrived, !arrived.header.isSwapped {
            return try withMarshalledBytes { message throws(Failure) in
                try body(UnsafeRawBufferPointer(rebasing: message[arrived.header.body]))
            }
        }
        // Preparing to read makes libdbus convert a message in the other byte order. The length of the arguments is
        // the number at offset 4 of a message (`bodyLengthOffset`).
        var iterator = DBusMessageIter()
        dbus_message_iter_init(pointer, &iterator)
        return try withLibraryBytes { message throws(Failure) in
            let length = Int(message.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
            return try body(UnsafeRawBufferPointer(rebasing: message[(message.count - length)...]))
        }
    }

    /// Calls `body` with the encoded arguments, as ``withMarshalledBody(_:)`` does. It is not generic, so that other
    /// modules look up no types at run time.
    public func readMarshalledBody(_ body: (UnsafeRawBufferPointer) throws(BusError) -> Void) throws(BusError) {
        guard let arrived, !arrived.header.isSwapped else { return try withMarshalledBody(body) }
        var fault: BusError?
        arrived.bytes.withUnsafeBytes { bytes in
            do throws(BusError) {
                try body(UnsafeRawBufferPointer(rebasing: bytes[arrived.header.body]))
            } catch {
                fault = error
            }
        }
        if let fault { throw fault }
    }

    /// Whether ``withMarshalledBody(_:)`` passes the arguments in place; otherwise it copies them at each call.
    public var hasBodyInPlace: Bool { arrived.map { !$0.header.isSwapped } ?? false }

    /// Returns a signal to one connection with arguments that are encoded and unchecked.
    ///
    /// - Returns: nil if `body` does not hold values of exactly the types in `signature`.
    public static func signal(
        to destination: UniqueName, path: ObjectPath, interface: InterfaceName, member: MemberName, serial: UInt32,
        signature: Signature, body: [UInt8]
    ) -> Message? {
        let form = MessageTemplate.signal(path: path, interface: interface, member: member, signature: signature)
        return Message(
            checking: form.message(to: destination, serial: serial, size: body.count) { $0.append(bytes: body) })
    }

    /// Creates a message that keeps the encoded bytes. libdbus does not parse them before arguments are read.
    ///
    /// - Parameter message: A message with values of exactly the types in its signature.
    public convenience init(marshalled message: MarshalledMessage) {
        assert(message.isValid, "libdbus rejects these bytes")
        self.init(arrived: message.bytes)!
    }

    /// Creates a message whose bytes libdbus parses and validates now.
    ///
    /// - Parameter message: A message with values of exactly the types in its signature.
    public convenience init(_ message: MarshalledMessage) {
        let pointer = Self.demarshalled(message)
        precondition(pointer != nil, "libdbus rejects bytes of this process's own encoder")
        self.init(adopting: pointer!)
    }

    /// Creates a message; nil if libdbus rejects the bytes.
    private convenience init?(checking message: MarshalledMessage) {
        guard let pointer = Self.demarshalled(message) else { return nil }
        self.init(adopting: pointer)
    }

    /// Returns the message as an object of libdbus; nil if libdbus rejects the bytes.
    fileprivate static func demarshalled(_ message: MarshalledMessage) -> OpaquePointer? {
        demarshalled(message.bytes, hasSerial: message.serial != 0)
    }

    /// Whether libdbus accepts these bytes of a message that has no serial yet. It costs a full validation.
    fileprivate static func isAccepted(_ bytes: [UInt8]) -> Bool {
        demarshalled(bytes, hasSerial: false).map { Message(adopting: $0) } != nil
    }

    /// Returns the message in these bytes as an object of libdbus; nil if libdbus rejects them.
    ///
    /// - Parameter hasSerial: Whether the bytes have a serial; otherwise the object has none either.
    private static func demarshalled(_ bytes: [UInt8], hasSerial: Bool) -> OpaquePointer? {
        var error = DBusError()
        dbus_error_init(&error)
        defer { dbus_error_free(&error) }
        var bytes = bytes
        // libdbus accepts no message without a serial, so a temporary one is set.
        if !hasSerial { bytes[MarshalledMessage.serialOffset] = 1 }
        let pointer = bytes.withUnsafeBytes { bytes in
            dbus_message_demarshal(bytes.baseAddress!.assumingMemoryBound(to: CChar.self), Int32(bytes.count), &error)
        }
        if let pointer, !hasSerial { dbus_message_set_serial(pointer, 0) }
        return pointer
    }
}

/// A message in the encoded form for a socket. ``MessageTemplate`` and ``EncodedHeader`` create it, and
/// ``MessageBus/send(_:)`` sends it without libdbus.
public struct MarshalledMessage {
    let bytes: [UInt8]
    /// The receiving connection.
    public let destination: UniqueName
    /// The serial; 0 for the next serial of the sending connection.
    let serial: UInt32

    /// The size of the whole message, in bytes.
    public var byteCount: Int { bytes.count }

    /// The offsets in a message of the flags, of the length of the arguments, and of the serial.
    static let (flagsOffset, bodyLengthOffset, serialOffset) = (2, 4, 8)

    /// Whether libdbus accepts the message, as it would at a receiver. It costs a full validation, for debug builds.
    var isValid: Bool { Message.demarshalled(self).map { Message(adopting: $0) } != nil }
}

/// A template for the messages of one kind, such as the calls of one method: the common part of their headers, encoded
/// once.
public struct MessageTemplate: Sendable {
    /// The header before the fields that differ, the destination and the reply serial. Lengths and serial are zero.
    private let start: [UInt8]
    /// The offsets in a message of the length of the header fields, and of the fields.
    private static let (fieldsLength, fields) = (12, 16)
    private static let byteOrderMark = UInt8(ascii: 1.littleEndian == 1 ? "l" : "B")

    /// Returns the template of a signal.
    public static func signal(
        path: ObjectPath, interface: InterfaceName, member: MemberName, signature: Signature
    ) -> MessageTemplate {
        MessageTemplate(type: DBUS_MESSAGE_TYPE_SIGNAL, signature) { header in
            header.append(field: DBUS_HEADER_FIELD_PATH, .objectPath) { $0.append(path.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_INTERFACE, .string) { $0.append(interface.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_MEMBER, .string) { $0.append(member.rawValue) }
        }
    }

    /// Returns the template of calls of one method to connections. They request a reply, and do not make the bus start
    /// the destination.
    public static func methodCall(
        path: ObjectPath, interface: InterfaceName, member: MemberName, signature: Signature
    ) -> MessageTemplate {
        MessageTemplate(type: DBUS_MESSAGE_TYPE_METHOD_CALL, flags: DBUS_HEADER_FLAG_NO_AUTO_START, signature) {
            header in
            header.append(field: DBUS_HEADER_FIELD_PATH, .objectPath) { $0.append(path.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_INTERFACE, .string) { $0.append(interface.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_MEMBER, .string) { $0.append(member.rawValue) }
        }
    }

    /// Returns the template of calls of one method to the owner of a name, for ``call(size:arguments:)``. They request
    /// no reply by default.
    public static func methodCall(
        to destination: WellKnownName, path: ObjectPath, interface: InterfaceName, member: MemberName,
        signature: Signature
    ) -> MessageTemplate {
        MessageTemplate(type: DBUS_MESSAGE_TYPE_METHOD_CALL, signature) { header in
            header.append(field: DBUS_HEADER_FIELD_PATH, .objectPath) { $0.append(path.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_INTERFACE, .string) { $0.append(interface.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_MEMBER, .string) { $0.append(member.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_DESTINATION, .string) { $0.append(destination.rawValue) }
        }
    }

    /// Returns the template of method returns.
    public static func methodReturn(signature: Signature) -> MessageTemplate {
        MessageTemplate(type: DBUS_MESSAGE_TYPE_METHOD_RETURN, signature) { _ in }
    }

    /// - Parameters:
    ///   - flags: By default the messages request no reply.
    ///   - moreFields: Appends the header fields of this kind of message other than the signature.
    private init(
        type: Int32, flags: Int32 = DBUS_HEADER_FLAG_NO_REPLY_EXPECTED, _ signature: Signature,
        _ moreFields: (inout MarshalledBytes) -> Void
    ) {
        start = MarshalledBytes.make(atMost: Self.maxInStart) { header in
            header.append(Self.byteOrderMark)
            header.append(UInt8(type))
            header.append(UInt8(flags))
            header.append(UInt8(DBUS_MAJOR_PROTOCOL_VERSION))
            // The two lengths, and the serial between them.
            for _ in 0..<3 { header.append(UInt32(0)) }
            moreFields(&header)
            guard !signature.rawValue.isEmpty else { return }
            header.append(field: DBUS_HEADER_FIELD_SIGNATURE, .signature) { $0.append(signature: signature.rawValue) }
        }
    }

    /// The maximum size of the common part of a header, in bytes. Each of its names has up to 255 bytes; paths of this
    /// program are short.
    private static let maxInStart = 4096

    /// Returns a message of this template to one connection.
    ///
    /// - Parameters:
    ///   - serial: The serial of the message; 0 for the next serial of the sending connection.
    ///   - call: The serial of the answered call; nil for other messages.
    ///   - size: The maximum size of the arguments with their alignment, in bytes.
    ///   - arguments: Appends values of exactly the types in the signature.
    public func message(
        to destination: UniqueName, serial: UInt32 = 0, answering call: UInt32? = nil, size: Int,
        arguments: (inout MarshalledBytes) -> Void
    ) -> MarshalledMessage {
        MarshalledMessage(
            bytes: bytes(
                to: destination.rawValue, serial: serial, answering: call, size: size, arguments: arguments),
            destination: destination, serial: serial)
    }

    /// Returns a message of this template without arguments to the bus itself.
    func messageToBus() -> Message {
        Message(arrived: bytes(to: "org.freedesktop.DBus", serial: 0, answering: nil, size: 0) { _ in })!
    }

    /// Returns the bytes of a message of this template; the parameters are those of
    /// ``message(to:serial:answering:size:arguments:)``.
    private func bytes(
        to destination: String, serial: UInt32, answering call: UInt32?, size: Int,
        arguments: (inout MarshalledBytes) -> Void
    ) -> [UInt8] {
        // 48 bytes suffice for the two fields apart from the name itself, and for the padding before the arguments.
        let capacity = start.count + destination.utf8.count + 48 + size
        return MarshalledBytes.make(atMost: capacity) { message in
            message.append(raw: start)
            message.append(field: DBUS_HEADER_FIELD_DESTINATION, .string) { $0.append(destination) }
            if let call {
                message.append(field: DBUS_HEADER_FIELD_REPLY_SERIAL, .uint32) { $0.append(call) }
            }
            Self.finish(&message, arguments)
            message.set(serial, at: MarshalledMessage.serialOffset)
        }
    }

    /// Returns the header of messages of this template to one connection.
    public func head(to destination: UniqueName) -> EncodedHeader {
        EncodedHeader(message(to: destination, size: 0) { _ in })
    }

    /// Returns a call to the name in this template, which requests no reply unless the caller changes that. The bus
    /// receives exactly these bytes, with a serial.
    ///
    /// - Parameter size: The maximum size of the arguments with their alignment, in bytes.
    /// - Parameter arguments: Appends values of exactly the types in the signature. Debug builds check them.
    /// - Returns: nil if the call exceeds the maximum size of a D-Bus message.
    /// - Throws: The error of `arguments`.
    public func call<Failure: Error>(
        size: Int, arguments: (inout MarshalledBytes) throws(Failure) -> Void
    ) throws(Failure) -> Message? {
        // 16 bytes suffice for the padding before the arguments.
        let capacity = start.count + 16 + size
        guard capacity <= MessageHeader.maxBytes else { return nil }
        var fault: Failure?
        let bytes = MarshalledBytes.make(atMost: capacity) { message in
            message.append(raw: start)
            Self.finish(&message) { body in
                do throws(Failure) { try arguments(&body) } catch { fault = error }
            }
        }
        if let fault { throw fault }
        assert(Message.isAccepted(bytes), "libdbus rejects these bytes")
        return Message(arrived: bytes)
    }

    /// Ends the header, appends the arguments, and sets both lengths.
    private static func finish(_ message: inout MarshalledBytes, _ arguments: (inout MarshalledBytes) -> Void) {
        message.set(UInt32(message.count - fields), at: fieldsLength)
        message.align(to: 8)
        let body = message.count
        arguments(&message)
        message.set(UInt32(message.count - body), at: MarshalledMessage.bodyLengthOffset)
    }
}

/// The complete header for messages of one kind to one connection, which differ only in serial, length and arguments.
/// The service keeps one for each client that it sends notifications to.
public struct EncodedHeader: Sendable {
    /// The receiving connection.
    public let destination: UniqueName
    /// The header with its padding, up to the arguments.
    let bytes: [UInt8]

    /// - Parameter message: A message without arguments.
    fileprivate init(_ message: MarshalledMessage) {
        destination = message.destination
        bytes = message.bytes
    }

    /// Returns a message with this header.
    ///
    /// - Parameters:
    ///   - serial: The serial of the message.
    ///   - shared: The encoded beginning of the arguments, possibly shared with messages to other receivers.
    ///   - size: The maximum size of the remaining arguments with their alignment, in bytes.
    ///   - rest: Appends the remaining arguments.
    public func message(
        serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void
    ) -> MarshalledMessage {
        let bytes = MarshalledBytes.make(atMost: bytes.count + shared.count + size) { message in
            marshal(&message, serial: serial, shared, rest)
        }
        return MarshalledMessage(bytes: bytes, destination: destination, serial: serial)
    }

    /// Appends a message with this header; the parameters are those of ``message(serial:_:size:rest:)``.
    func marshal(
        _ message: inout MarshalledBytes, serial: UInt32, _ shared: [UInt8], _ rest: (inout MarshalledBytes) -> Void
    ) {
        message.append(raw: bytes)
        message.append(raw: shared)
        rest(&message)
        message.set(UInt32(message.count - bytes.count), at: MarshalledMessage.bodyLengthOffset)
        message.set(serial, at: MarshalledMessage.serialOffset)
    }
}

/// An encoder of values in the D-Bus layout, in this machine's byte order.
///
/// It writes into memory of fixed capacity. The caller computes the capacity before, for example with
/// ``maxBytes(of:)``; an overflow is a programming error and ends the process.
public struct MarshalledBytes: ~Copyable {
    private let memory: UnsafeMutableRawPointer
    private let capacity: Int
    /// The number of bytes written.
    private(set) var count = 0

    init(_ memory: UnsafeMutableRawPointer, capacity: Int) {
        self.memory = memory
        self.capacity = capacity
    }

    /// Returns the bytes that `body` appends, aligned as if they stood behind `others` bytes that begin at a multiple
    /// of 8.
    ///
    /// - Parameter capacity: The maximum number of bytes.
    static func make(atMost capacity: Int, behind others: Int, _ body: (inout MarshalledBytes) -> Void) -> [UInt8] {
        // The remainder of a division by 8, the largest alignment in D-Bus.
        let offset = others & 7
        let bytes = make(atMost: offset + capacity) { bytes in
            for _ in 0..<offset { bytes.append(UInt8(0)) }
            body(&bytes)
        }
        return Array(bytes[offset...])
    }

    /// Returns the bytes that `body` appends, aligned as if they began at a multiple of 8.
    ///
    /// - Parameter capacity: The maximum number of bytes. An overflow is a programming error.
    public static func make(atMost capacity: Int, _ body: (inout MarshalledBytes) -> Void) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: capacity) { buffer, count in
            var bytes = MarshalledBytes(buffer.baseAddress!, capacity: capacity)
            body(&bytes)
            count = bytes.count
        }
    }

    /// Returns the maximum size of a text with its length, its padding and its NUL, in bytes.
    public static func maxBytes(of text: String) -> Int { 8 + text.utf8.count }

    /// The maximum size of the length of an array with the padding around it, in bytes.
    public static var maxBytesOfArray: Int { 16 }

    /// Returns the maximum size of an array of `count` 64-bit integers (`at`), in bytes.
    public static func maxBytes(ofIntegers count: Int) -> Int { 16 + 8 * count }

    public mutating func append(_ value: UInt8) { append(integer: value) }
    public mutating func append(_ value: UInt32) { append(integer: value) }
    public mutating func append(_ value: UInt64) { append(integer: value) }

    /// Appends a text without NUL characters.
    public mutating func append(_ text: String) {
        append(UInt32(text.utf8.count))
        append(raw: text)
        append(UInt8(0))
    }

    /// Appends an array of 64-bit integers (`at`).
    public mutating func append(_ values: [UInt64]) {
        append(UInt32(8 * values.count))
        align(to: 8)
        for value in values { append(integer: value) }
    }

    /// Appends an array of 64-bit integers (`at`) with one element.
    public mutating func append(arrayOf value: UInt64) {
        append(UInt32(8))
        append(integer: value)
    }

    /// Appends an array whose elements are structures, dictionary entries or 64-bit values, all aligned to 8 bytes.
    ///
    /// - Parameter elements: Appends the elements.
    public mutating func array(_ elements: (inout MarshalledBytes) -> Void) {
        append(UInt32(0))
        let length = count - 4
        align(to: 8)
        let start = count
        elements(&self)
        set(UInt32(count - start), at: length)
    }

    /// Appends values that were encoded elsewhere from an offset that is a multiple of 8, as they are.
    public mutating func append(bytes more: [UInt8]) {
        align(to: 8)
        append(raw: more)
    }

    /// Appends a signature: its length in one byte, and the text with a NUL.
    mutating func append(signature: String) {
        append(UInt8(signature.utf8.count))
        append(raw: signature)
        append(UInt8(0))
    }

    /// Appends a header field: its code, and its value as a variant of a type with a one-letter signature.
    fileprivate mutating func append(
        field code: Int32, _ type: TypeCode, _ value: (inout MarshalledBytes) -> Void
    ) {
        align(to: 8)
        append(UInt8(code))
        append(UInt8(1))
        append(UInt8(type.rawValue))
        append(UInt8(0))
        value(&self)
    }

    /// Replaces a number that is already written.
    ///
    /// - Parameter offset: The offset of four existing bytes.
    mutating func set(_ value: UInt32, at offset: Int) {
        precondition(offset + 4 <= count, "the number to replace is not within the written bytes")
        memory.storeBytes(of: value, toByteOffset: offset, as: UInt32.self)
    }

    /// Appends zero bytes up to a multiple of `alignment`.
    mutating func align(to alignment: Int) {
        let end = (count + alignment - 1) & ~(alignment - 1)
        precondition(end <= capacity, "the encoded values exceed the stated maximum size")
        while count < end {
            memory.storeBytes(of: 0, toByteOffset: count, as: UInt8.self)
            count += 1
        }
    }

    /// Appends an integer in this machine's byte order, after padding up to a multiple of its size. D-Bus aligns each
    /// integer to its own size, and the first byte of a message states the byte order.
    mutating func append<Value: FixedWidthInteger>(integer value: Value) {
        align(to: MemoryLayout<Value>.size)
        take(MemoryLayout<Value>.size).storeBytes(of: value, as: Value.self)
    }

    /// Appends the header of a message whose arguments, encoded elsewhere, have this length.
    mutating func append(_ head: EncodedHeader, serial: UInt32, bodyLength: Int) {
        let start = count
        append(raw: head.bytes)
        set(UInt32(bodyLength), at: start + MarshalledMessage.bodyLengthOffset)
        set(serial, at: start + MarshalledMessage.serialOffset)
    }

    /// Appends bytes without alignment.
    mutating func append(raw bytes: [UInt8]) {
        bytes.withUnsafeBytes { append(raw: $0) }
    }

    mutating func append(raw bytes: UnsafeRawBufferPointer) {
        guard let start = bytes.baseAddress else { return }
        take(bytes.count).copyMemory(from: start, byteCount: bytes.count)
    }

    private mutating func append(raw text: String) {
        var text = text
        text.withUTF8 { bytes in
            guard let start = bytes.baseAddress else { return }
            take(bytes.count).copyMemory(from: start, byteCount: bytes.count)
        }
    }

    /// Returns the memory for the next `more` bytes, which the caller fills completely.
    mutating func take(_ more: Int) -> UnsafeMutableRawPointer {
        precondition(more <= capacity - count, "the encoded values exceed the stated maximum size")
        defer { count += more }
        return memory + count
    }
}
