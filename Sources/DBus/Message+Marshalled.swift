import BusNames
import CDBus

/// Messages from bytes and back, for what is sent many times with little difference.
///
/// Appending values one by one costs libdbus a rewrite of the header for each, as the signature in it grows. A message
/// that is put together as bytes, which libdbus then validates like any that arrives, costs a fraction of that.
extension Message {
    /// The marshalled arguments, in this machine's byte order.
    public var marshalledBody: [UInt8] {
        // Reading the first value makes libdbus swap a message that came in the other byte order.
        var iterator = DBusMessageIter()
        dbus_message_iter_init(pointer, &iterator)
        var bytes: UnsafeMutablePointer<CChar>?
        var count: Int32 = 0
        check(dbus_message_marshal(pointer, &bytes, &count))
        defer { dbus_free(bytes) }
        let message = UnsafeRawBufferPointer(start: bytes, count: Int(count))
        let length = Int(message.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
        return Array(UnsafeRawBufferPointer(rebasing: message[(message.count - length)...]))
    }

    /// A signal to one connection with these marshalled arguments.
    ///
    /// - Returns: nil when `body` does not hold values of exactly the types in `signature`.
    public static func signal(
        to destination: UniqueName, path: ObjectPath, interface: InterfaceName, member: MemberName, serial: UInt32,
        signature: Signature, body: [UInt8]
    ) -> Message? {
        var header = MarshalledBytes(capacity: 256 + body.count)
        header.append(byteOrderMark)
        header.append(UInt8(DBUS_MESSAGE_TYPE_SIGNAL))
        header.append(UInt8(DBUS_HEADER_FLAG_NO_REPLY_EXPECTED))
        header.append(UInt8(DBUS_MAJOR_PROTOCOL_VERSION))
        header.append(UInt32(body.count))
        header.append(serial)
        header.appendArray(alignedTo: 8) { fields in
            func field(_ code: Int32, _ type: TypeCode, _ value: String) {
                fields.align(to: 8)
                fields.append(UInt8(code))
                fields.append(signature: String(type.letter))
                if type == .signature { fields.append(signature: value) } else { fields.append(value) }
            }
            field(DBUS_HEADER_FIELD_PATH, .objectPath, path.rawValue)
            field(DBUS_HEADER_FIELD_INTERFACE, .string, interface.rawValue)
            field(DBUS_HEADER_FIELD_MEMBER, .string, member.rawValue)
            field(DBUS_HEADER_FIELD_DESTINATION, .string, destination.rawValue)
            field(DBUS_HEADER_FIELD_SIGNATURE, .signature, signature.rawValue)
        }
        header.align(to: 8)
        header.bytes += body
        var error = DBusError()
        dbus_error_init(&error)
        let message = header.bytes.withUnsafeBytes { bytes in
            dbus_message_demarshal(bytes.baseAddress!.assumingMemoryBound(to: CChar.self), Int32(bytes.count), &error)
        }
        guard let message else {
            dbus_error_free(&error)
            return nil
        }
        return Message(adopting: message)
    }

    private static let byteOrderMark = UInt8(ascii: 1.littleEndian == 1 ? "l" : "B")
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
        appendArray(alignedTo: 8) { array in
            for value in values { array.append(value) }
        }
    }

    fileprivate mutating func append(signature: String) {
        bytes.append(UInt8(signature.utf8.count))
        bytes += signature.utf8
        bytes.append(0)
    }

    fileprivate mutating func appendArray(alignedTo alignment: Int, _ body: (inout MarshalledBytes) -> Void) {
        append(UInt32(0))
        let lengthEnd = bytes.count
        align(to: alignment)
        let start = bytes.count
        body(&self)
        let length = UInt32(bytes.count - start)
        withUnsafeBytes(of: length) { bytes.replaceSubrange(lengthEnd - 4..<lengthEnd, with: $0) }
    }

    fileprivate mutating func align(to alignment: Int) {
        while bytes.count % alignment != 0 { bytes.append(0) }
    }

    private mutating func append<Value: FixedWidthInteger>(integer value: Value) {
        align(to: MemoryLayout<Value>.size)
        withUnsafeBytes(of: value) { bytes += $0 }
    }
}
