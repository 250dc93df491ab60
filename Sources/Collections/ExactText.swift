// SPDX-License-Identifier: Apache-2.0
/// A text that equals another only byte for byte.
///
/// Swift's `String` takes canonically equivalent texts for equal ("é" and "e" with an accent that combines). Between
/// processes, in any language, two names are the same name when their UTF-8 is the same.
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

    /// The order of their bytes.
    public static func < (left: ExactText, right: ExactText) -> Bool {
        var (left, right) = (left.text, right.text)
        return left.withUTF8 { left in
            right.withUTF8 { right in precedes(UnsafeRawBufferPointer(left), UnsafeRawBufferPointer(right)) }
        }
    }

    /// Eight bytes at a time.
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

    /// Whether a text is the one that is wanted; nil wants any.
    public static func matches(_ wanted: String?, _ text: String) -> Bool {
        wanted.map { ExactText($0) == ExactText(text) } ?? true
    }

    /// Compares two buffers of the same size, eight bytes at a time. `elementsEqual` takes one, which for the longest
    /// names and objects was a third of what their registration cost.
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
        hasher.combine(0xFF as UInt8)  // in no UTF-8: tells where the text ends
    }
}
