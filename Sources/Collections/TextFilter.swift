// SPDX-License-Identifier: Apache-2.0
/// A counting Bloom filter with one hash: a small table that excludes most texts outside of a collection. The service
/// uses it for the names and objects of all registrations. Under overload it recognizes posts that no observer wants by
/// their bytes alone.
///
/// The size of the table is fixed at 65,536 counters, so that it never rehashes. False positives become frequent from
/// about ten thousand texts on.
///
/// A value type; not thread-safe by itself.
public struct TextFilter {
    /// The number of counters; the hash has 16 bits.
    private static let slotCount = 1 << 16
    /// The number of inserted texts for each hash; empty before the first insertion. A counter that has reached its
    /// maximum stays there, as the true number is unknown.
    private var counts: [UInt16] = []

    public init() {}

    /// Adds a text. A text that is added twice has to be removed twice.
    public mutating func insert(_ text: String) {
        if counts.isEmpty { counts = Array(repeating: 0, count: Self.slotCount) }
        let slot = Self.slot(of: text)
        if counts[slot] < .max { counts[slot] += 1 }
    }

    /// Removes a text that was inserted before.
    public mutating func remove(_ text: String) {
        let slot = Self.slot(of: text)
        guard !counts.isEmpty, 1..<UInt16.max ~= counts[slot] else { return }
        counts[slot] -= 1
    }

    /// Whether the text with these bytes may be in the filter. It is true for each text that is in it, and rarely for
    /// others.
    public func mayContain(_ bytes: UnsafeRawBufferPointer) -> Bool {
        !counts.isEmpty && counts[Self.slot(of: bytes)] > 0
    }

    /// Returns the counter of a text.
    private static func slot(of text: String) -> Int {
        var text = text
        return text.withUTF8 { slot(of: UnsafeRawBufferPointer($0)) }
    }

    /// Returns the counter of a text: the upper 16 bits of a multiplicative hash over words of eight bytes (FNV-1a on
    /// words).
    private static func slot(of bytes: UnsafeRawBufferPointer) -> Int {
        var hash = UInt64(truncatingIfNeeded: bytes.count)
        func mix(_ word: UInt64) {
            hash = (hash ^ word) &* 0x9E37_79B9_7F4A_7C15
            hash ^= hash >> 29
        }
        var offset = 0
        while bytes.count - offset >= 8 {
            mix(bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            offset += 8
        }
        var rest: UInt64 = 0
        while offset < bytes.count {
            rest = rest << 8 | UInt64(bytes[offset])
            offset += 1
        }
        mix(rest)
        return Int(hash >> 48)
    }
}
