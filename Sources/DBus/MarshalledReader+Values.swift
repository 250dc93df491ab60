// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Reads of typed values. As the other members, they return nil for bytes that violate the D-Bus layout.
extension MarshalledReader {
    /// Reads a value with the same layout in memory and on the wire.
    @inlinable
    public mutating func readFixed<Value: FixedSizeType>(_: Value.Type = Value.self) -> Value? {
        let size = MemoryLayout<Value>.size
        guard skip(size) else { return nil }
        return bytes.loadUnaligned(fromByteOffset: offset - size, as: Value.self)
    }

    public mutating func readBool() -> Bool? {
        guard let value = readUInt32(), value <= 1 else { return nil }
        return value == 1
    }

    /// Reads a text that was validated before. Nevertheless invalid UTF-8 is replaced, as a `String` can't hold it.
    public mutating func readKnownText() -> String? {
        // The text begins behind its length, a UInt32 at a multiple of 4 bytes.
        let start = ((offset + 3) & ~3) + 4
        guard skipText() else { return nil }
        return String(decoding: UnsafeRawBufferPointer(rebasing: bytes[start..<offset - 1]), as: UTF8.self)
    }

    /// Reads a text, and returns `recent` without a copy if it has the same bytes. Successive notifications often have
    /// the same name and object.
    public mutating func readString(like recent: String) -> String? {
        let start = offset
        if let count = readUInt32(), count == recent.utf8.count, Int(count) < bytes.count - offset,
            bytes[offset + Int(count)] == 0, hasText(recent)
        {
            position += Int(count) + 1
            return recent
        }
        position = start
        return readString()
    }

    /// Whether the next bytes equal `text`. The caller has checked that as many bytes are left.
    private func hasText(_ text: String) -> Bool {
        var text = text
        return text.withUTF8 { text in
            guard let start = text.baseAddress, !text.isEmpty else { return true }
            return memcmp(start, bytes.baseAddress! + offset, text.count) == 0
        }
    }

    /// Reads an array of values with the same layout in memory and on the wire; nil also for an array that ends within
    /// a value.
    @inlinable
    public mutating func readFixedArray<Element: FixedSizeType>(of _: Element.Type = Element.self) -> [Element]? {
        let size = MemoryLayout<Element>.size
        // This `position` is the range of the elements in ``bytes``.
        guard let position = readArray(alignedTo: size), position.count % size == 0 else { return nil }
        move(to: position.upperBound)
        return (0..<position.count / size).map { number in
            bytes.loadUnaligned(fromByteOffset: position.lowerBound + size * number, as: Element.self)
        }
    }
}
