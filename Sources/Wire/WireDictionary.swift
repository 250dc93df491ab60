// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// A helper to convert a received dictionary with known keys to a typed value: each `take` removes an entry and returns
/// its value. The entries that remain have keys that this version does not know.
struct WireDictionary {
    /// The entries that were not taken.
    private(set) var entries: [String: PropertyList]

    init(_ entries: [String: PropertyList]) {
        self.entries = entries
    }

    /// Takes the value of a required key.
    ///
    /// - Parameter value: Returns the value as the wanted type; nil for another type.
    /// - Throws: InvalidArgs if the key is missing, or its value has the wrong type.
    mutating func take<Value>(
        _ key: String, _ value: (PropertyList) -> Value?
    ) throws(BusError) -> Value {
        guard let entry = entries.removeValue(forKey: key) else { throw .invalidArgs("'\(key)' is missing") }
        guard let value = value(entry) else { throw .invalidArgs("'\(key)' has the wrong type") }
        return value
    }

    /// Takes the value of an optional key; nil if it is missing.
    mutating func takeOptional<Value>(
        _ key: String, _ value: (PropertyList) -> Value?
    ) throws(BusError) -> Value? {
        entries[key] == nil ? nil : try take(key, value)
    }

    /// Takes the value of a key that older services do not have; `standard` if it is missing.
    mutating func take<Value>(
        _ key: String, _ value: (PropertyList) -> Value?, orElse standard: Value
    ) throws(BusError) -> Value {
        entries[key] == nil ? standard : try take(key, value)
    }
}

/// The value as a Swift type; nil for a value of another type.
extension PropertyList {
    var string: String? { if case .string(let value) = self { value } else { nil } }
    var boolean: Bool? { if case .boolean(let value) = self { value } else { nil } }
    var uint32: UInt32? { if case .uint32(let value) = self { value } else { nil } }
    var uint64: UInt64? { if case .uint64(let value) = self { value } else { nil } }
    var dictionary: [String: PropertyList]? { if case .dictionary(let value) = self { value } else { nil } }
    var strings: [String]? {
        guard case .array(let values) = self else { return nil }
        let strings = values.compactMap(\.string)
        return strings.count == values.count ? strings : nil
    }
}
