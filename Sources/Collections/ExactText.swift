// SPDX-License-Identifier: Apache-2.0
/// A text that is compared byte for byte. It is used for names, objects and keys that come from other programs.
///
/// Swift's `String` treats canonically equivalent texts as equal, such as "é" and "e" with a combining accent. For
/// programs in other languages, two names are equal only if their UTF-8 is equal.
public struct ExactText: Hashable, Comparable, Sendable {
    public let text: String

    public init(_ text: String) {
        self.text = text
    }

    public static func == (left: ExactText, right: ExactText) -> Bool {
        guard left.text.utf8.count == right.text.utf8.count else { return false }
        var (left, right) = (left.text, right.text)
        return left.withUTF8 { left in
            right.withUTF8 { right in haveSameBytes(UnsafeRawBufferPointer(left), UnsafeRawBufferPointer(right)) }
        }
    }

    /// Compares the texts by their bytes.
    public static func < (left: ExactText, right: ExactText) -> Bool {
        var (left, right) = (left.text, right.text)
        return left.withUTF8 { left in
            right.withUTF8 { right in precedes(UnsafeRawBufferPointer(left), UnsafeRawBufferPointer(right)) }
        }
    }

    /// Whether one text comes first in the order of bytes. Eight bytes are compared at a time.
    private static func precedes(_ left: UnsafeRawBufferPointer, _ right: UnsafeRawBufferPointer) -> Bool {
        let width = MemoryLayout<UInt64>.size
        let whole = min(left.count, right.count) / width * width
        for offset in stride(from: 0, to: whole, by: width) {
            let (one, other) = (
                UInt64(bigEndian: left.loadUnaligned(fromByteOffset: offset, as: UInt64.self)),
                UInt64(bigEndian: right.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            )
            if one != other { return one < other }
        }
        return left[whole...].lexicographicallyPrecedes(right[whole...])
    }

    /// Whether a text matches a filter: it equals `wanted`, or `wanted` is nil.
    public static func matches(_ wanted: String?, _ text: String) -> Bool {
        wanted.map { ExactText($0) == ExactText(text) } ?? true
    }

    /// Compares two buffers of the same size, eight bytes at a time. `elementsEqual` compares single bytes, which is
    /// much slower for long names.
    private static func haveSameBytes(_ left: UnsafeRawBufferPointer, _ right: UnsafeRawBufferPointer) -> Bool {
        guard left.baseAddress != right.baseAddress else { return true }
        let width = MemoryLayout<UInt64>.size
        let whole = left.count - left.count % width
        for offset in stride(from: 0, to: whole, by: width)
        where left.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
            != right.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
        {
            return false
        }
        return left[whole...].elementsEqual(right[whole...])
    }

    public func hash(into hasher: inout Hasher) {
        var text = text
        text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
        hasher.combine(0xFF as UInt8)  // This byte occurs in no UTF-8, and marks the end of the text.
    }
}
