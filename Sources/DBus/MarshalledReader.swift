// SPDX-License-Identifier: Apache-2.0
/// Reads arguments where they lie, for the few kinds of messages that come in masses.
///
/// It takes nothing for granted: a bus may hand on arguments that it has not looked at. What is not laid out as D-Bus lays
/// it out it does not read, and it never leaves the bytes.
public struct MarshalledReader {
    /// In this machine's byte order, from a place on that D-Bus would align to 8.
    public let bytes: UnsafeRawBufferPointer
    /// Where it is.
    public var offset: Int { place }
    @usableFromInline
    var place: Int

    public init(_ bytes: UnsafeRawBufferPointer, at offset: Int = 0) {
        self.bytes = bytes
        place = offset
    }

    public var isAtEnd: Bool { offset == bytes.count }

    /// Goes on at `offset`, which is none before.
    @inlinable
    public mutating func move(to offset: Int) {
        place = offset
    }

    /// Passes over padding, all of which is zero. Returns false otherwise.
    @inlinable @inline(__always)
    public mutating func align(to alignment: Int) -> Bool {
        let end = (place + alignment - 1) & ~(alignment - 1)
        guard end <= bytes.count else { return false }
        while place < end {
            guard bytes[place] == 0 else { return false }
            place += 1
        }
        return true
    }

    /// Passes over a value of a size that is also its alignment.
    @inlinable @inline(__always)
    public mutating func skip(_ size: Int) -> Bool {
        guard align(to: size), size <= bytes.count - place else { return false }
        place += size
        return true
    }

    @inlinable @inline(__always)
    public mutating func readUInt32() -> UInt32? {
        guard skip(4) else { return nil }
        return bytes.loadUnaligned(fromByteOffset: offset - 4, as: UInt32.self)
    }

    /// A text: UTF-8 without NUL, and one behind it. Returns where it stands.
    public mutating func readText() -> Range<Int>? {
        guard let count = readUInt32(), Int(count) < bytes.count - offset else { return nil }
        let text = offset..<offset + Int(count)
        guard bytes[text.upperBound] == 0, Self.isText(UnsafeRawBufferPointer(rebasing: bytes[text])) else {
            return nil
        }
        place = text.upperBound + 1
        return text
    }

    /// Passes over a text without a look at what is in it. Returns where it stands.
    @inlinable @inline(__always)
    public mutating func passOverText() -> Range<Int>? {
        guard let count = readUInt32(), Int(count) < bytes.count - offset, bytes[offset + Int(count)] == 0 else {
            return nil
        }
        let text = offset..<offset + Int(count)
        place = text.upperBound + 1
        return text
    }

    /// The same of one whose place nobody asks for. Returns false where there is none.
    public mutating func skipText() -> Bool { passOverText() != nil }

    public mutating func readString() -> String? {
        readText().map { String(decoding: bytes[$0], as: UTF8.self) }
    }

    /// The signature of a variant. Returns where it stands; what is in there nobody has looked at.
    public mutating func readSignature() -> Range<Int>? {
        guard offset < bytes.count else { return nil }
        let (start, count) = (offset + 1, Int(bytes[offset]))
        guard count < bytes.count - start, bytes[start + count] == 0 else { return nil }
        place = start + count + 1
        return start..<start + count
    }

    /// Passes over the beginning of an array. Returns where its elements stand.
    @inlinable @inline(__always)
    public mutating func readArray(alignedTo alignment: Int) -> Range<Int>? {
        guard let count = readUInt32(), align(to: alignment), Int(count) <= bytes.count - offset else { return nil }
        return offset..<offset + Int(count)
    }

    /// Whether these bytes are UTF-8 without NUL.
    public static func isText(_ bytes: UnsafeRawBufferPointer) -> Bool {
        let (ones, highs) = (0x0101_0101_0101_0101 as UInt64, 0x8080_8080_8080_8080 as UInt64)
        var offset = 0
        while bytes.count - offset >= 8 {
            let eight = bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
            // One that is zero borrows from its highest bit; one of those that are not ASCII has it.
            guard (eight &- ones | eight) & highs == 0 else { return isUTF8(bytes) }
            offset += 8
        }
        while offset < bytes.count {
            guard 1..<128 ~= bytes[offset] else { return isUTF8(bytes) }
            offset += 1
        }
        return true
    }

    private static func isUTF8(_ bytes: UnsafeRawBufferPointer) -> Bool {
        !bytes.contains(0) && String(validating: bytes, as: UTF8.self) != nil
    }
}
