// SPDX-License-Identifier: Apache-2.0
/// A dictionary that never moves all of its entries at once, however large it grows.
///
/// A `Dictionary` that is full moves everything into one that is twice as large: with a quarter of a million texts that
/// takes some 80 ms, in the one call that happens to come then. Here a large one consists of many parts, by the keys' hashes,
/// and each grows alone. A small one is a `Dictionary`, and costs what that does. As entries go, so does their memory, also
/// while some are left.
///
/// A value type; not thread-safe by itself. Inlinable, so that each module that uses it has it for its own types.
public struct SteadyDictionary<Key: Hashable, Value> {
    @usableFromInline static var maxInOne: Int { 2048 }
    @usableFromInline static var partCount: Int { 128 }

    /// All, while there are few.
    @usableFromInline var small: [Key: Value] = [:]
    /// Of many, each in the part that the upper bits of its hash say; empty while there are few.
    @usableFromInline var parts: [[Key: Value]] = []
    /// In the parts.
    @usableFromInline var countOfParts = 0

    @inlinable public init() {}

    @inlinable public var count: Int { parts.isEmpty ? small.count : countOfParts }
    @inlinable public var isEmpty: Bool { count == 0 }

    /// The value of a key; nil when there is none, and when it is set to nil.
    @inlinable public subscript(key: Key) -> Value? {
        get { parts.isEmpty ? small[key] : parts[Self.part(of: key)][key] }
        _modify {
            if parts.isEmpty {
                yield &small[key]
                if small.count > Self.maxInOne { split() } else { small.releaseRoomOfMost() }
            } else {
                let part = Self.part(of: key)
                let before = parts[part].count
                yield &parts[part][key]
                noteChange(of: parts[part].count - before, part)
            }
        }
    }

    /// The value of a key, which is put in where there is none.
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

    /// Takes out the value of a key.
    @inlinable @discardableResult
    public mutating func removeValue(forKey key: Key) -> Value? {
        guard !parts.isEmpty else {
            defer { small.releaseRoomOfMost() }
            return small.removeValue(forKey: key)
        }
        let part = Self.part(of: key)
        let value = parts[part].removeValue(forKey: key)
        if value != nil { noteChange(of: -1, part) }
        return value
    }

    /// Drops everything.
    ///
    /// - Parameter keepingCapacity: keeps the memory of a small one.
    @inlinable public mutating func removeAll(keepingCapacity: Bool = false) {
        small.removeAll(keepingCapacity: keepingCapacity)
        (parts, countOfParts) = ([], 0)
    }

    /// Changes all values.
    @inlinable public mutating func updateValues(_ change: (Value) -> Value) {
        small = small.mapValues(change)
        for part in parts.indices { parts[part] = parts[part].mapValues(change) }
    }

    /// All values, in no particular order.
    @inlinable public var values: some Sequence<Value> { [[small], parts].joined().lazy.flatMap(\.values) }

    /// All entries, in no particular order.
    @inlinable public var entries: some Sequence<(key: Key, value: Value)> { [[small], parts].joined().lazy.joined() }

    @inlinable static func part(of key: Key) -> Int {
        Int(truncatingIfNeeded: UInt(bitPattern: key.hashValue) >> UInt(UInt.bitWidth - 7))
    }

    @inlinable mutating func split() {
        parts = Array(repeating: [:], count: Self.partCount)
        for (key, value) in small { parts[Self.part(of: key)][key] = value }
        countOfParts = small.count
        small = [:]
    }

    @inlinable mutating func noteChange(of count: Int, _ part: Int) {
        countOfParts += count
        guard count < 0 else { return }
        if countOfParts <= Self.maxInOne / 8 { releaseRoom() } else { parts[part].releaseRoomOfMost() }
    }
}

extension SteadyDictionary: Equatable where Value: Equatable {
    @inlinable public static func == (left: SteadyDictionary, right: SteadyDictionary) -> Bool {
        left.count == right.count && left.entries.allSatisfy { right[$0.key] == $0.value }
    }
}
