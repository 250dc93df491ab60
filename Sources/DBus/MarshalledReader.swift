// SPDX-License-Identifier: Apache-2.0
/// A decoder of encoded arguments without copies and without libdbus, for the few kinds of messages with high volume:
/// posts and notifications. The caller knows the types from the signature of the message.
///
/// Input is untrusted, since a bus may forward arguments without checking them. The decoder rejects bytes that violate
/// the D-Bus layout, and stays within the bounds: each read returns nil or false for invalid or missing bytes. The
/// position is unspecified after such a failure.
public struct MarshalledReader {
    /// The bytes in this machine's byte order, at an alignment of 8 bytes.
    public let bytes: UnsafeRawBufferPointer
    /// The position of the decoder in ``bytes``.
    public var offset: Int { position }
    /// The position, in a property that the inlined members can change.
    @usableFromInline
    var position: Int

    public init(_ bytes: UnsafeRawBufferPointer, at offset: Int = 0) {
        self.bytes = bytes
        position = offset
    }

    public var isAtEnd: Bool { offset == bytes.count }

    /// Moves to `offset`, which the caller keeps within the bounds.
    @inlinable
    public mutating func move(to offset: Int) {
        position = offset
    }

    /// Skips the padding up to a multiple of `alignment`; false if a padding byte is missing or not zero.
    @inlinable @inline(__always)
    public mutating func align(to alignment: Int) -> Bool {
        let end = (position + alignment - 1) & ~(alignment - 1)
        guard end <= bytes.count else { return false }
        while position < end {
            guard bytes[position] == 0 else { return false }
            position += 1
        }
        return true
    }

    /// Skips a value of `size` bytes, which is also its alignment.
    @inlinable @inline(__always)
    public mutating func skip(_ size: Int) -> Bool {
        guard align(to: size), size <= bytes.count - position else { return false }
        position += size
        return true
    }

    @inlinable @inline(__always)
    public mutating func readUInt32() -> UInt32? {
        guard skip(4) else { return nil }
        return bytes.loadUnaligned(fromByteOffset: offset - 4, as: UInt32.self)
    }

    /// Reads a text and validates it: UTF-8 without NUL characters, followed by a NUL. Returns the range of the text.
    public mutating func readText() -> Range<Int>? {
        guard let count = readUInt32(), Int(count) < bytes.count - offset else { return nil }
        let text = offset..<offset + Int(count)
        guard bytes[text.upperBound] == 0, Self.isText(UnsafeRawBufferPointer(rebasing: bytes[text])) else {
            return nil
        }
        position = text.upperBound + 1
        return text
    }

    /// Reads a text without validation of its characters. Returns the range of the text.
    @inlinable @inline(__always)
    public mutating func passOverText() -> Range<Int>? {
        guard let count = readUInt32(), Int(count) < bytes.count - offset, bytes[offset + Int(count)] == 0 else {
            return nil
        }
        let text = offset..<offset + Int(count)
        position = text.upperBound + 1
        return text
    }

    /// Skips a text without validation of its characters; false if there is none.
    public mutating func skipText() -> Bool { passOverText() != nil }

    public mutating func readString() -> String? {
        readText().map { String(decoding: bytes[$0], as: UTF8.self) }
    }

    /// Reads the signature of a variant. Returns its range; its content is not validated.
    public mutating func readSignature() -> Range<Int>? {
        guard offset < bytes.count else { return nil }
        let (start, count) = (offset + 1, Int(bytes[offset]))
        guard count < bytes.count - start, bytes[start + count] == 0 else { return nil }
        position = start + count + 1
        return start..<start + count
    }

    /// Reads the length of an array, and moves to its first element. Returns the range of all elements, in bytes.
    @inlinable @inline(__always)
    public mutating func readArray(alignedTo alignment: Int) -> Range<Int>? {
        guard let count = readUInt32(), align(to: alignment), Int(count) <= bytes.count - offset else { return nil }
        return offset..<offset + Int(count)
    }

    /// Whether the bytes are valid UTF-8 without NUL.
    public static func isText(_ bytes: UnsafeRawBufferPointer) -> Bool {
        let (ones, highs) = (0x0101_0101_0101_0101 as UInt64, 0x8080_8080_8080_8080 as UInt64)
        var offset = 0
        while bytes.count - offset >= 8 {
            let eight = bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
            // Eight bytes are tested at once. Subtracting 1 from a zero byte sets its highest bit; a byte beyond ASCII
            // has that bit set. The slow test decides for both.
            guard (eight &- ones | eight) & highs == 0 else { return isUTF8(bytes) }
            offset += 8
        }
        while offset < bytes.count {
            guard 1..<128 ~= bytes[offset] else { return isUTF8(bytes) }
            offset += 1
        }
        return true
    }

    /// Tests all bytes, with the standard library.
    private static func isUTF8(_ bytes: UnsafeRawBufferPointer) -> Bool {
        !bytes.contains(0) && String(validating: bytes, as: UTF8.self) != nil
    }
}
