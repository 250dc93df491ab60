// SPDX-License-Identifier: Apache-2.0
/// A dictionary that never moves all of its entries at once. It is for large tables of the service, where one call must
/// not delay the others.
///
/// A `Dictionary` that is full moves all entries to a table of twice the size. For a quarter of a million texts this
/// takes about 80 ms in a single call. Here a dictionary with more than 2048 entries is split into 128 parts by the
/// hashes of the keys, and each part grows alone. A smaller one is a single `Dictionary`. The memory of a part is
/// released when less than an eighth of it is used. All parts are merged when at most 256 entries are left.
///
/// A value type; not thread-safe by itself. Inlinable, so that each module can specialize it for its own types.
public struct SteadyDictionary<Key: Hashable, Value> {
    /// The maximum number of entries of a small dictionary.
    @usableFromInline static var maxInOne: Int { 2048 }
    /// The number of parts of a large dictionary.
    @usableFromInline static var partCount: Int { 128 }

    /// All entries of a small dictionary.
    @usableFromInline var small: [Key: Value] = [:]
    /// The parts of a large dictionary, indexed by the upper bits of the hash; empty in a small one.
    @usableFromInline var parts: [[Key: Value]] = []
    /// The number of entries in the parts.
    @usableFromInline var countOfParts = 0

    @inlinable public init() {}

    @inlinable public var count: Int { parts.isEmpty ? small.count : countOfParts }
    @inlinable public var isEmpty: Bool { count == 0 }

    /// The value of a key; nil if there is none. Setting nil removes the key.
    @inlinable public subscript(key: Key) -> Value? {
        get { parts.isEmpty ? small[key] : parts[Self.part(of: key)][key] }
        _modify {
            if parts.isEmpty {
                yield &small[key]
                if small.count > Self.maxInOne { split() } else { small.releaseIfMostlyUnused() }
            } else {
                let part = Self.part(of: key)
                let before = parts[part].count
                yield &parts[part][key]
                noteChange(of: parts[part].count - before, part)
            }
        }
    }

    /// The value of a key, which is inserted if it is missing.
    @inlinable public subscript(key: Key, default standard: @autoclosure () -> Value) -> Value {
        get { self[key] ?? standard() }
        _modify {
            if parts.isEmpty {
                yield &small[key, default: standard()]
                if small.count > Self.maxInOne { split() }
            } else {
                let part = Self.part(of: key)
                let before = parts[part].count
                yield &parts[part][key, default: standard()]
                noteChange(of: parts[part].count - before, part)
            }
        }
    }

    /// Removes and returns the value of a key.
    @inlinable @discardableResult
    public mutating func removeValue(forKey key: Key) -> Value? {
        guard !parts.isEmpty else {
            defer { small.releaseIfMostlyUnused() }
            return small.removeValue(forKey: key)
        }
        let part = Self.part(of: key)
        let value = parts[part].removeValue(forKey: key)
        if value != nil { noteChange(of: -1, part) }
        return value
    }

    /// Removes all entries.
    ///
    /// - Parameter keepingCapacity: Whether a small dictionary keeps its memory.
    @inlinable public mutating func removeAll(keepingCapacity: Bool = false) {
        small.removeAll(keepingCapacity: keepingCapacity)
        (parts, countOfParts) = ([], 0)
    }

    /// Replaces all values.
    @inlinable public mutating func updateValues(_ change: (Value) -> Value) {
        small = small.mapValues(change)
        for part in parts.indices { parts[part] = parts[part].mapValues(change) }
    }

    /// All values, in no particular order.
    @inlinable public var values: some Sequence<Value> { [[small], parts].joined().lazy.flatMap(\.values) }

    /// All entries, in no particular order.
    @inlinable public var entries: some Sequence<(key: Key, value: Value)> { [[small], parts].joined().lazy.joined() }

    /// Returns the index of the part for a key: the upper seven bits of its hash.
    @inlinable static func part(of key: Key) -> Int {
        Int(truncatingIfNeeded: UInt(bitPattern: key.hashValue) >> UInt(UInt.bitWidth - 7))
    }

    /// Makes a small dictionary a large one.
    @inlinable mutating func split() {
        parts = Array(repeating: [:], count: Self.partCount)
        for (key, value) in small { parts[Self.part(of: key)][key] = value }
        countOfParts = small.count
        small = [:]
    }

    /// Updates the count after a change in one part, and releases unused memory. A dictionary that has shrunk to 256
    /// entries, an eighth of ``maxInOne``, becomes small again in `releaseMemory()` (`ReleaseMemory.swift`).
    @inlinable mutating func noteChange(of count: Int, _ part: Int) {
        countOfParts += count
        guard count < 0 else { return }
        if countOfParts <= Self.maxInOne / 8 { releaseMemory() } else { parts[part].releaseIfMostlyUnused() }
    }
}

extension SteadyDictionary: Equatable where Value: Equatable {
    @inlinable public static func == (left: SteadyDictionary, right: SteadyDictionary) -> Bool {
        left.count == right.count && left.entries.allSatisfy { right[$0.key] == $0.value }
    }
}
