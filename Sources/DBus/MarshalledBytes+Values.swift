// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Further values for the encoder ``MarshalledBytes``: the other basic types, arrays and structures.
extension MarshalledBytes {
    // One overload per type: a generic function would look up types at run time when other modules call it.

    public mutating func append(_ value: Int16) { append(integer: value) }
    public mutating func append(_ value: UInt16) { append(integer: value) }
    public mutating func append(_ value: Int32) { append(integer: value) }
    public mutating func append(_ value: Int64) { append(integer: value) }
    public mutating func append(_ value: Double) { append(integer: value.bitPattern) }
    public mutating func append(_ value: Bool) { append(UInt32(value ? 1 : 0)) }

    /// Appends a text and checks it for NUL characters, which no D-Bus string can hold.
    ///
    /// - Returns: Whether the text holds no NUL character. Otherwise the encoding is invalid, and the caller has to
    ///   discard all of it.
    public mutating func append(checking text: String) -> Bool {
        var text = text
        return text.withUTF8 { bytes in
            append(UInt32(bytes.count))
            let place = take(bytes.count + 1)
            place.storeBytes(of: 0, toByteOffset: bytes.count, as: UInt8.self)
            guard let start = bytes.baseAddress, !bytes.isEmpty else { return true }
            place.copyMemory(from: start, byteCount: bytes.count)
            return memchr(place, 0, bytes.count) == nil
        }
    }

    /// Appends an array of bytes, `ay`.
    public mutating func append(data: [UInt8]) {
        append(UInt32(data.count))
        data.withUnsafeBytes { bytes in
            guard let start = bytes.baseAddress, !bytes.isEmpty else { return }
            take(bytes.count).copyMemory(from: start, byteCount: bytes.count)
        }
    }

    /// Appends values that were encoded elsewhere from an offset that is a multiple of 8, as they are.
    public mutating func append(marshalled more: UnsafeRawBufferPointer) {
        align(to: 8)
        guard let start = more.baseAddress, !more.isEmpty else { return }
        take(more.count).copyMemory(from: start, byteCount: more.count)
    }

    /// Appends the signature of a variant.
    public mutating func append(signature: StaticString) {
        let count = signature.utf8CodeUnitCount
        append(UInt8(count))
        // Static strings end with a NUL character, which is copied, too.
        take(count + 1).copyMemory(from: signature.utf8Start, byteCount: count + 1)
    }

    /// The offsets of an array that has begun and not ended.
    public struct ArrayStart {
        /// The offset of the length, which is written at the end.
        fileprivate let length: Int
        /// The offset of the first element.
        fileprivate let elements: Int
    }

    /// Begins an array with elements of this alignment, in bytes. The values appended up to ``end(_:)`` are its
    /// elements.
    public mutating func beginArray(alignedTo alignment: Int) -> ArrayStart {
        append(UInt32(0))
        let length = count - 4
        align(to: alignment)
        return ArrayStart(length: length, elements: count)
    }

    /// Ends an array: sets its length.
    public mutating func end(_ array: ArrayStart) {
        set(UInt32(count - array.elements), at: array.length)
    }

    /// Begins a structure or an entry of a dictionary.
    public mutating func beginStructure() { align(to: 8) }
}

extension String {
    /// Whether the string holds a NUL character, which no D-Bus string can.
    package var holdsNUL: Bool {
        var text = self
        return text.withUTF8 { bytes in
            guard let start = bytes.baseAddress, !bytes.isEmpty else { return false }
            return memchr(start, 0, bytes.count) != nil
        }
    }
}
