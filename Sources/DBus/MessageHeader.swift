// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus

/// The parsed header of an encoded message: its numbers, and the ranges of its text fields and of its body in the
/// bytes.
///
/// ``SocketReader`` parses each received header into it. The bus has validated the header, so only the bounds are
/// checked here.
struct MessageHeader {
    /// The error for bytes that are not a message. The connection has to end then, as the beginning of the next message
    /// is unknown.
    struct Malformed: Error {}

    /// The size of the fixed part of a header: byte order, type, flags, version, two lengths, and the serial between
    /// them.
    static let fixedSize = 16
    /// The limits of the D-Bus specification for the header fields and for a whole message, in bytes.
    private static let maxFieldBytes = 64 << 20
    static let maxBytes = 128 << 20

    /// Storage for an optional range in two 32-bit integers, less than half its usual size, since headers are copied.
    @propertyWrapper
    struct CompactRange {
        private var start: UInt32 = .max
        private var end: UInt32 = .max

        init(wrappedValue: Range<Int>?) { self.wrappedValue = wrappedValue }

        var wrappedValue: Range<Int>? {
            get { start == .max ? nil : Int(start)..<Int(end) }
            set {
                // A message has at most `maxBytes` bytes.
                start = newValue.map { UInt32(truncatingIfNeeded: $0.lowerBound) } ?? .max
                end = newValue.map { UInt32(truncatingIfNeeded: $0.upperBound) } ?? .max
            }
        }
    }

    /// The code of the message type, such as `DBUS_MESSAGE_TYPE_SIGNAL`.
    let type: UInt8
    /// The flags, such as `DBUS_HEADER_FLAG_NO_REPLY_EXPECTED`.
    var flags: UInt8
    /// The serial; 0 for a message that was encoded in this process and not sent yet.
    var serial: UInt32
    /// Whether numbers are in the other byte order than this machine's.
    let isSwapped: Bool
    /// The range of the encoded arguments.
    let body: Range<Int>
    @CompactRange private(set) var path: Range<Int>? = nil
    @CompactRange private(set) var interface: Range<Int>? = nil
    @CompactRange private(set) var member: Range<Int>? = nil
    @CompactRange private(set) var errorName: Range<Int>? = nil
    @CompactRange private(set) var destination: Range<Int>? = nil
    @CompactRange private(set) var sender: Range<Int>? = nil
    @CompactRange private(set) var signature: Range<Int>? = nil
    /// The serial of the answered call; 0 for other messages.
    private(set) var replySerial: UInt32 = 0
    /// The offset in the bytes at which the number of descriptors stands; nil without descriptors.
    private(set) var descriptorCount: Int?

    /// Returns the length, in bytes, of the message that begins with these bytes; nil while they are too few.
    static func byteCount(of bytes: UnsafeRawBufferPointer) throws(Malformed) -> Int? {
        guard bytes.count >= fixedSize else { return nil }
        let isSwapped = try isSwapped(bytes[0])
        let bodyLength = Int(uint32(bytes, at: 4, isSwapped))
        let fieldsLength = Int(uint32(bytes, at: 12, isSwapped))
        guard bytes[3] == UInt8(DBUS_MAJOR_PROTOCOL_VERSION), fieldsLength <= maxFieldBytes, bodyLength <= maxBytes
        else { throw Malformed() }
        let count = padded(fixedSize + fieldsLength) + bodyLength
        guard count <= maxBytes else { throw Malformed() }
        return count
    }

    /// Parses a header.
    ///
    /// - Parameter bytes: A whole message, of the length from ``byteCount(of:)``.
    /// - Returns: nil for a header that no bus creates, such as one with a length beyond its bounds or with a field of
    ///   an unusual type. The caller then leaves the message to libdbus.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard let isSwapped = try? Self.isSwapped(bytes[0]) else { return nil }
        self.isSwapped = isSwapped
        (type, flags) = (bytes[1], bytes[2])
        guard type != 0 else { return nil }
        serial = Self.uint32(bytes, at: 8, isSwapped)
        body = bytes.count - Int(Self.uint32(bytes, at: 4, isSwapped))..<bytes.count
        let end = Self.fixedSize + Int(Self.uint32(bytes, at: 12, isSwapped))
        guard body.lowerBound == Self.padded(end) else { return nil }
        var position = Self.fixedSize
        while position < end {
            position = Self.padded(position)
            // A field begins with its code and the signature of its value, which is one letter between 1 and NUL.
            guard position + 4 < end, bytes[position + 1] == 1, bytes[position + 3] == 0 else { return nil }
            let (code, type) = (Int32(bytes[position]), bytes[position + 2])
            guard code != 0 else { return nil }
            position += 4
            switch type {
            case UInt8(ascii: "u"):
                guard position + 4 <= end else { return nil }
                if code == DBUS_HEADER_FIELD_REPLY_SERIAL { replySerial = Self.uint32(bytes, at: position, isSwapped) }
                if code == DBUS_HEADER_FIELD_UNIX_FDS, Self.uint32(bytes, at: position, isSwapped) > 0 {
                    descriptorCount = position
                }
                position += 4
            case UInt8(ascii: "s"), UInt8(ascii: "o"):
                guard position + 4 <= end else { return nil }
                let start = position + 4
                let count = Int(Self.uint32(bytes, at: position, isSwapped))
                guard count < end - start, bytes[start + count] == 0 else { return nil }
                setText(code, start..<start + count)
                position = start + count + 1
            case UInt8(ascii: "g"):
                let (start, count) = (position + 1, Int(bytes[position]))
                guard count < end - start, bytes[start + count] == 0 else { return nil }
                if code == DBUS_HEADER_FIELD_SIGNATURE { signature = start..<start + count }
                position = start + count + 1
            default: return nil
            }
        }
        guard position == end else { return nil }
    }

    /// Stores the range of a text field. Unknown fields are ignored, as the specification demands.
    private mutating func setText(_ code: Int32, _ text: Range<Int>) {
        switch code {
        case DBUS_HEADER_FIELD_PATH: path = text
        case DBUS_HEADER_FIELD_INTERFACE: interface = text
        case DBUS_HEADER_FIELD_MEMBER: member = text
        case DBUS_HEADER_FIELD_ERROR_NAME: errorName = text
        case DBUS_HEADER_FIELD_DESTINATION: destination = text
        case DBUS_HEADER_FIELD_SENDER: sender = text
        default: break
        }
    }

    /// Whether the first byte of a message, `l` or `B` for little or big endian, is for the other byte order.
    private static func isSwapped(_ mark: UInt8) throws(Malformed) -> Bool {
        switch mark {
        case UInt8(ascii: "l"): 1.littleEndian != 1
        case UInt8(ascii: "B"): 1.littleEndian == 1
        default: throw Malformed()
        }
    }

    private static func uint32(_ bytes: UnsafeRawBufferPointer, at offset: Int, _ isSwapped: Bool) -> UInt32 {
        let value = bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)
        return isSwapped ? value.byteSwapped : value
    }

    /// Returns `offset` rounded up to a multiple of 8, where each header field and the body begin.
    static func padded(_ offset: Int) -> Int { (offset + 7) & ~7 }
}
