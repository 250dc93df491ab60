// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Values of the other types, and arrays of any: for what is put together by somebody who knows its type.
extension MarshalledBytes {
    // One for each type: a generic one would have to find out its type while the program runs, in other modules.

    public mutating func append(_ value: Int16) { append(integer: value) }
    public mutating func append(_ value: UInt16) { append(integer: value) }
    public mutating func append(_ value: Int32) { append(integer: value) }
    public mutating func append(_ value: Int64) { append(integer: value) }
    public mutating func append(_ value: Double) { append(integer: value.bitPattern) }
    public mutating func append(_ value: Bool) { append(UInt32(value ? 1 : 0)) }

    /// A text that may hold a NUL character, which no text on D-Bus does.
    ///
    /// - Returns: whether it holds none. Otherwise what was appended is no text, and the caller throws all of it away.
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

    /// An array `ay`.
    public mutating func append(data: [UInt8]) {
        append(UInt32(data.count))
        data.withUnsafeBytes { bytes in
            guard let start = bytes.baseAddress, !bytes.isEmpty else { return }
            take(bytes.count).copyMemory(from: start, byteCount: bytes.count)
        }
    }

    /// Values that are laid out already, for a place that D-Bus would align to 8.
    public mutating func append(laidOut more: UnsafeRawBufferPointer) {
        align(to: 8)
        guard let start = more.baseAddress, !more.isEmpty else { return }
        take(more.count).copyMemory(from: start, byteCount: more.count)
    }

    /// The signature of a variant.
    public mutating func append(signature: StaticString) {
        let count = signature.utf8CodeUnitCount
        append(UInt8(count))
        // With the NUL behind it, that static strings have.
        take(count + 1).copyMemory(from: signature.utf8Start, byteCount: count + 1)
    }

    /// Where an array began.
    public struct ArrayStart {
        fileprivate let length: Int
        fileprivate let elements: Int
    }

    /// Begins an array whose elements have this alignment. What is appended up to ``end(_:)`` are its elements.
    public mutating func beginArray(alignedTo alignment: Int) -> ArrayStart {
        append(UInt32(0))
        let length = count - 4
        align(to: alignment)
        return ArrayStart(length: length, elements: count)
    }

    public mutating func end(_ array: ArrayStart) {
        set(UInt32(count - array.elements), at: array.length)
    }

    /// Begins a structure, or an entry of a dictionary.
    public mutating func beginStructure() { align(to: 8) }
}

extension String {
    /// Whether it holds a NUL character, which no text on D-Bus does.
    package var holdsNUL: Bool {
        var text = self
        return text.withUTF8 { bytes in
            guard let start = bytes.baseAddress, !bytes.isEmpty else { return false }
            return memchr(start, 0, bytes.count) != nil
        }
    }
}
