// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames

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

    /// The same for whoever reads masses of them: nothing of it has to find out types while the program runs.
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

    /// Whether ``withMarshalledBody(_:)`` takes them where they lie; otherwise it makes a copy each time.
    public var hasBodyInPlace: Bool { arrived.map { !$0.header.isSwapped } ?? false }

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

    /// The same bytes, at which libdbus does not look before somebody wants arguments.
    ///
    /// - Parameter message: holds values of exactly the types in its signature.
    public convenience init(laidOut message: MarshalledMessage) {
        assert(message.isValid, "libdbus would not take these bytes")
        self.init(arrived: message.bytes)!
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
        demarshalled(message.bytes, isNumbered: message.serial != 0)
    }

    /// Whether libdbus would take what has no number yet. Costs as much as that.
    fileprivate static func isAccepted(_ bytes: [UInt8]) -> Bool {
        demarshalled(bytes, isNumbered: false).map { Message(adopting: $0) } != nil
    }

    private static func demarshalled(_ bytes: [UInt8], isNumbered: Bool) -> OpaquePointer? {
        var error = DBusError()
        dbus_error_init(&error)
        defer { dbus_error_free(&error) }
        var bytes = bytes
        // libdbus takes no message without a number, and gives it one.
        if !isNumbered { bytes[MarshalledMessage.serialOffset] = 1 }
        let pointer = bytes.withUnsafeBytes { bytes in
            dbus_message_demarshal(bytes.baseAddress!.assumingMemoryBound(to: CChar.self), Int32(bytes.count), &error)
        }
        if let pointer, !isNumbered { dbus_message_set_serial(pointer, 0) }
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

    public var byteCount: Int { bytes.count }

    /// Where the flags stand, the length of the arguments, and the serial.
    static let (flagsOffset, bodyLengthOffset, serialOffset) = (2, 4, 8)

    /// Whether libdbus would take it, where it arrives. Costs as much as that.
    var isValid: Bool { Message.demarshalled(self).map { Message(adopting: $0) } != nil }
}

/// What is the same in all messages of one kind: most of the header.
public struct MessageForm: Sendable {
    /// Up to where the receiver comes.
    private let start: [UInt8]
    /// Where the length of the fields stands, and where they begin.
    private static let (fieldsLength, fields) = (12, 16)
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

    /// Calls of one method, which want an answer and have the bus start nobody.
    public static func methodCall(
        path: ObjectPath, interface: InterfaceName, member: MemberName, signature: Signature
    ) -> MessageForm {
        MessageForm(type: DBUS_MESSAGE_TYPE_METHOD_CALL, flags: DBUS_HEADER_FLAG_NO_AUTO_START, signature) { header in
            header.append(field: DBUS_HEADER_FIELD_PATH, .objectPath) { $0.append(path.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_INTERFACE, .string) { $0.append(interface.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_MEMBER, .string) { $0.append(member.rawValue) }
        }
    }

    /// Calls of one method, which go to the owner of a name: ``call(size:arguments:)``.
    public static func methodCall(
        to destination: WellKnownName, path: ObjectPath, interface: InterfaceName, member: MemberName,
        signature: Signature
    ) -> MessageForm {
        MessageForm(type: DBUS_MESSAGE_TYPE_METHOD_CALL, signature) { header in
            header.append(field: DBUS_HEADER_FIELD_PATH, .objectPath) { $0.append(path.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_INTERFACE, .string) { $0.append(interface.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_MEMBER, .string) { $0.append(member.rawValue) }
            header.append(field: DBUS_HEADER_FIELD_DESTINATION, .string) { $0.append(destination.rawValue) }
        }
    }

    /// Answers of one kind.
    public static func methodReturn(signature: Signature) -> MessageForm {
        MessageForm(type: DBUS_MESSAGE_TYPE_METHOD_RETURN, signature) { _ in }
    }

    private init(
        type: Int32, flags: Int32 = DBUS_HEADER_FLAG_NO_REPLY_EXPECTED, _ signature: Signature,
        _ moreFields: (inout MarshalledBytes) -> Void
    ) {
        start = MarshalledBytes.make(atMost: Self.maxInStart) { header in
            header.append(Self.byteOrderMark)
            header.append(UInt8(type))
            header.append(UInt8(flags))
            header.append(UInt8(DBUS_MAJOR_PROTOCOL_VERSION))
            // The two lengths, with the serial between them.
            for _ in 0..<3 { header.append(UInt32(0)) }
            moreFields(&header)
            guard !signature.rawValue.isEmpty else { return }
            header.append(field: DBUS_HEADER_FIELD_SIGNATURE, .signature) { $0.append(signature: signature.rawValue) }
        }
    }

    private static let maxInStart = 4096

    /// A message of this form to one connection.
    ///
    /// - Parameters:
    ///   - serial: of the message; 0 for the next number of the connection that sends it.
    ///   - call: the serial of the call that it answers; nil for what is no answer.
    ///   - size: the most that its arguments take, with their alignment, in bytes.
    ///   - arguments: appends values of exactly the types in the signature.
    public func message(
        to destination: UniqueName, serial: UInt32 = 0, answering call: UInt32? = nil, size: Int,
        arguments: (inout MarshalledBytes) -> Void
    ) -> MarshalledMessage {
        MarshalledMessage(
            bytes: bytes(
                to: destination.rawValue, serial: serial, answering: call, size: size, arguments: arguments),
            destination: destination, serial: serial)
    }

    /// A message of this form without arguments to the bus itself.
    func messageToBus() -> Message {
        Message(arrived: bytes(to: "org.freedesktop.DBus", serial: 0, answering: nil, size: 0) { _ in })!
    }

    private func bytes(
        to destination: String, serial: UInt32, answering call: UInt32?, size: Int,
        arguments: (inout MarshalledBytes) -> Void
    ) -> [UInt8] {
        // The fields for the receiver and of an answer, and what aligns them and the arguments.
        let most = start.count + destination.utf8.count + 48 + size
        return MarshalledBytes.make(atMost: most) { message in
            message.append(raw: start)
            message.append(field: DBUS_HEADER_FIELD_DESTINATION, .string) { $0.append(destination) }
            if let call {
                message.append(field: DBUS_HEADER_FIELD_REPLY_SERIAL, .uint32) { $0.append(call) }
            }
            Self.finish(&message, arguments)
            message.set(serial, at: MarshalledMessage.serialOffset)
        }
    }

    /// All that comes before the arguments in messages of this form to one connection.
    public func head(to destination: UniqueName) -> MessageHead {
        MessageHead(message(to: destination, size: 0) { _ in })
    }

    /// A call of this form, which wants no answer unless it is told to. It goes to the bus as it is laid out here.
    ///
    /// - Parameter arguments: appends values of exactly the types in the signature. Debug builds look.
    /// - Returns: nil when it would be too long for D-Bus.
    /// - Throws: what `arguments` throws.
    public func call<Failure: Error>(
        size: Int, arguments: (inout MarshalledBytes) throws(Failure) -> Void
    ) throws(Failure) -> Message? {
        let most = start.count + 16 + size
        guard most <= MessageHeader.maxBytes else { return nil }
        var fault: Failure?
        let bytes = MarshalledBytes.make(atMost: most) { message in
            message.append(raw: start)
            Self.finish(&message) { body in
                do throws(Failure) { try arguments(&body) } catch { fault = error }
            }
        }
        if let fault { throw fault }
        assert(Message.isAccepted(bytes), "libdbus would not take these bytes")
        return Message(arrived: bytes)
    }

    private static func finish(_ message: inout MarshalledBytes, _ arguments: (inout MarshalledBytes) -> Void) {
        message.set(UInt32(message.count - fields), at: fieldsLength)
        message.align(to: 8)
        let body = message.count
        arguments(&message)
        message.set(UInt32(message.count - body), at: MarshalledMessage.bodyLengthOffset)
    }
}

/// The header of messages that differ in it by their numbers and lengths alone.
public struct MessageHead: Sendable {
    /// The connection that they go to.
    public let destination: UniqueName
    /// Up to where the arguments come.
    let bytes: [UInt8]

    /// - Parameter message: without arguments.
    fileprivate init(_ message: MarshalledMessage) {
        destination = message.destination
        bytes = message.bytes
    }

    /// One of them.
    ///
    /// - Parameters:
    ///   - serial: of the message.
    ///   - shared: with which its arguments begin, laid out already; others may have it, too.
    ///   - size: the most that the rest of them takes, with its alignment, in bytes.
    ///   - rest: appends the rest.
    public func message(
        serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void
    ) -> MarshalledMessage {
        let bytes = MarshalledBytes.make(atMost: bytes.count + shared.count + size) { message in
            lay(&message, serial: serial, shared, rest)
        }
        return MarshalledMessage(bytes: bytes, destination: destination, serial: serial)
    }

    func lay(
        _ message: inout MarshalledBytes, serial: UInt32, _ shared: [UInt8], _ rest: (inout MarshalledBytes) -> Void
    ) {
        message.append(raw: bytes)
        message.append(raw: shared)
        rest(&message)
        message.set(UInt32(message.count - bytes.count), at: MarshalledMessage.bodyLengthOffset)
        message.set(serial, at: MarshalledMessage.serialOffset)
    }
}

/// Where values are laid out as D-Bus aligns them, in this machine's byte order.
public struct MarshalledBytes: ~Copyable {
    private let memory: UnsafeMutableRawPointer
    private let capacity: Int
    private(set) var count = 0

    init(_ memory: UnsafeMutableRawPointer, capacity: Int) {
        self.memory = memory
        self.capacity = capacity
    }

    /// Has `body` append to this memory, whose beginning D-Bus would align to 8.
    ///
    /// - Returns: how many bytes that was. More than there is room for are a programmer's error.
    static func lay(into room: UnsafeMutableRawBufferPointer, _ body: (inout MarshalledBytes) -> Void) -> Int {
        guard let start = room.baseAddress else { return 0 }
        var bytes = MarshalledBytes(start, capacity: room.count)
        body(&bytes)
        return bytes.count
    }

    /// The bytes of what `body` appends behind so many others, the first of which D-Bus would align to 8.
    ///
    /// - Parameter most: as many as there may be.
    static func make(atMost most: Int, behind others: Int, _ body: (inout MarshalledBytes) -> Void) -> [UInt8] {
        let offset = others & 7
        let bytes = make(atMost: offset + most) { bytes in
            for _ in 0..<offset { bytes.append(UInt8(0)) }
            body(&bytes)
        }
        return Array(bytes[offset...])
    }

    /// The bytes of what `body` appends, from a place on that D-Bus would align to 8.
    ///
    /// - Parameter most: as many as there may be. More are a programmer's error.
    public static func make(atMost most: Int, _ body: (inout MarshalledBytes) -> Void) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: most) { buffer, count in
            var bytes = MarshalledBytes(buffer.baseAddress!, capacity: most)
            body(&bytes)
            count = bytes.count
        }
    }

    /// The most that a text takes with what comes before and behind it.
    public static func maxBytes(of text: String) -> Int { 8 + text.utf8.count }

    /// The most that the beginning of an array takes.
    public static var maxBytesOfArray: Int { 16 }

    /// The most that an array of so many `t` takes.
    public static func maxBytes(ofIntegers count: Int) -> Int { 16 + 8 * count }

    public mutating func append(_ value: UInt8) { append(integer: value) }
    public mutating func append(_ value: UInt32) { append(integer: value) }
    public mutating func append(_ value: UInt64) { append(integer: value) }

    public mutating func append(_ text: String) {
        append(UInt32(text.utf8.count))
        append(raw: text)
        append(UInt8(0))
    }

    /// An array `at`.
    public mutating func append(_ values: [UInt64]) {
        append(UInt32(8 * values.count))
        align(to: 8)
        for value in values { append(integer: value) }
    }

    /// An array `at` with one element.
    public mutating func append(arrayOf value: UInt64) {
        append(UInt32(8))
        append(integer: value)
    }

    /// An array of structures, or of entries of a dictionary, each of which begins where D-Bus aligns to 8.
    public mutating func array(_ elements: (inout MarshalledBytes) -> Void) {
        append(UInt32(0))
        let length = count - 4
        align(to: 8)
        let start = count
        elements(&self)
        set(UInt32(count - start), at: length)
    }

    /// Values that are laid out already, for a place that D-Bus would align to 8.
    public mutating func append(bytes more: [UInt8]) {
        align(to: 8)
        append(raw: more)
    }

    mutating func append(signature: String) {
        append(UInt8(signature.utf8.count))
        append(raw: signature)
        append(UInt8(0))
    }

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

    /// - Parameter offset: of four bytes that are there.
    mutating func set(_ value: UInt32, at offset: Int) {
        precondition(offset + 4 <= count, "what is set is there")
        memory.storeBytes(of: value, toByteOffset: offset, as: UInt32.self)
    }

    mutating func align(to alignment: Int) {
        let end = (count + alignment - 1) & ~(alignment - 1)
        precondition(end <= capacity, "there are no more bytes than were said")
        while count < end {
            memory.storeBytes(of: 0, toByteOffset: count, as: UInt8.self)
            count += 1
        }
    }

    mutating func append<Value: FixedWidthInteger>(integer value: Value) {
        align(to: MemoryLayout<Value>.size)
        take(MemoryLayout<Value>.size).storeBytes(of: value, as: Value.self)
    }

    /// The header of a message whose arguments, which are not here, have this length.
    mutating func append(_ head: MessageHead, serial: UInt32, bodyLength: Int) {
        let start = count
        append(raw: head.bytes)
        set(UInt32(bodyLength), at: start + MarshalledMessage.bodyLengthOffset)
        set(serial, at: start + MarshalledMessage.serialOffset)
    }

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

    /// Room for so many more.
    mutating func take(_ more: Int) -> UnsafeMutableRawPointer {
        precondition(more <= capacity - count, "there are no more bytes than were said")
        defer { count += more }
        return memory + count
    }
}
