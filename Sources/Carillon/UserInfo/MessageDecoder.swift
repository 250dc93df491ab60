// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire
import Foundation

/// A decoder of property lists into values of `Decodable` types, for received messages. The results are those of
/// Foundation's decoder of property lists. Errors contain the path to the value.
struct MessageDecoder: Decoder {
    /// The value to decode.
    private let value: PropertyList
    private let path: CodingPath

    var codingPath: [any CodingKey] { path.keys }
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    /// Decodes a value.
    ///
    /// - Parameter path: the path to the value, for errors.
    /// - Throws: `DecodingError`, and the errors of the type's own decoding.
    static func decode<Value: Decodable>(
        _ type: Value.Type, from value: PropertyList, at path: CodingPath = .root
    ) throws -> Value {
        try MessageDecoder(value: value, path: path).decode(type)
    }

    func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
        guard case .dictionary(let entries) = value else { throw mismatch("a dictionary") }
        return KeyedDecodingContainer(Keyed(entries: entries, path: path))
    }

    func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
        guard case .array(let elements) = value else { throw mismatch("an array") }
        return Unkeyed(elements: elements, path: path)
    }

    func singleValueContainer() -> any SingleValueDecodingContainer { Single(decoder: self) }

    // MARK: Values

    /// Whether the value is the text that represents nil.
    private var isNull: Bool { value == MessageEncoder.null }

    private func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
        // Data and Date are native types of the wire format; their own decoding would expect other representations. The
        // other comparisons are shortcuts for common types.
        if type == Data.self { return try data() as! Value }
        if type == Date.self { return try date() as! Value }
        if type == String.self { return try string() as! Value }
        if type == Int.self { return try integer(Int.self) as! Value }
        return try Value(from: self)
    }

    private func boolean() throws -> Bool {
        guard case .boolean(let value) = value else { throw mismatch("a boolean") }
        return value
    }

    private func string() throws -> String {
        // The text that represents nil is accepted here, because other programs may post it as an ordinary text. For an
        // optional, `decodeNil` has recognized it before.
        guard case .string(let value) = value else { throw mismatch("a string") }
        return value
    }

    private func data() throws -> Data {
        guard case .data(let bytes) = value else { throw mismatch("data") }
        return Data(bytes)
    }

    private func date() throws -> Date {
        guard case .date = value, let date = UserInfoDecoder.decode(value) as? Date else { throw mismatch("a date") }
        return date
    }

    /// Decodes an integer of any width on the wire, if the wanted type can hold it.
    private func integer<Integer: FixedWidthInteger>(_ type: Integer.Type) throws -> Integer {
        let result: Integer? =
            switch value {
            case .uint8(let value): Integer(exactly: value)
            case .int16(let value): Integer(exactly: value)
            case .uint16(let value): Integer(exactly: value)
            case .int32(let value): Integer(exactly: value)
            case .uint32(let value): Integer(exactly: value)
            case .int64(let value): Integer(exactly: value)
            case .uint64(let value): Integer(exactly: value)
            // Some languages have only floating-point numbers.
            case .double(let value): Integer(exactly: value)
            default: throw mismatch("an integer")
            }
        guard let result else { throw unfit("\(type)") }
        return result
    }

    /// Decodes a number, rounded if necessary: the wire format has one floating-point type, so a poster cannot state
    /// another precision.
    private func number<Number: BinaryFloatingPoint>(_ type: Number.Type) throws -> Number {
        switch value {
        case .double(let value):
            let number = Number(value)
            guard number.isFinite || !value.isFinite else { throw unfit("\(type)") }
            return number
        case .uint64(let value): return Number(value)
        case .uint8, .int16, .uint16, .int32, .uint32, .int64: return Number(try integer(Int64.self))
        default: throw mismatch("a number")
        }
    }

    // MARK: Errors

    /// Returns the error of a value with another type than the wanted one.
    private func mismatch(_ wanted: String) -> DecodingError {
        let context = DecodingError.Context(
            codingPath: codingPath, debugDescription: "there is \(isNull ? "nothing" : value.kind) instead of \(wanted)"
        )
        return isNull ? .valueNotFound(Any.self, context) : .typeMismatch(Any.self, context)
    }

    /// Returns the error of a number outside of the range of its type.
    private func unfit(_ type: String) -> DecodingError {
        .dataCorrupted(.init(codingPath: codingPath, debugDescription: "the number does not fit in \(type)"))
    }

    // MARK: Containers

    /// A dictionary whose keys are the properties of a type.
    private struct Keyed<Key: CodingKey>: KeyedDecodingContainerProtocol {
        let entries: [String: PropertyList]
        let path: CodingPath
        var codingPath: [any CodingKey] { path.keys }
        var allKeys: [Key] { entries.keys.compactMap { Key(stringValue: $0) } }

        func contains(_ key: Key) -> Bool { entries[key.stringValue] != nil }

        private func decoder(_ key: some CodingKey) throws -> MessageDecoder {
            guard let value = entries[key.stringValue] else {
                throw DecodingError.keyNotFound(
                    key, .init(codingPath: codingPath, debugDescription: "there is no \(key.stringValue)"))
            }
            return MessageDecoder(value: value, path: path.appending(key))
        }

        func decodeNil(forKey key: Key) throws -> Bool { try decoder(key).isNull }
        func decode(_ type: Bool.Type, forKey key: Key) throws -> Bool { try decoder(key).boolean() }
        func decode(_ type: String.Type, forKey key: Key) throws -> String { try decoder(key).string() }
        func decode(_ type: Double.Type, forKey key: Key) throws -> Double { try decoder(key).number(type) }
        func decode(_ type: Float.Type, forKey key: Key) throws -> Float { try decoder(key).number(type) }
        func decode(_ type: Int.Type, forKey key: Key) throws -> Int { try decoder(key).integer(type) }
        func decode(_ type: Int8.Type, forKey key: Key) throws -> Int8 { try decoder(key).integer(type) }
        func decode(_ type: Int16.Type, forKey key: Key) throws -> Int16 { try decoder(key).integer(type) }
        func decode(_ type: Int32.Type, forKey key: Key) throws -> Int32 { try decoder(key).integer(type) }
        func decode(_ type: Int64.Type, forKey key: Key) throws -> Int64 { try decoder(key).integer(type) }
        func decode(_ type: UInt.Type, forKey key: Key) throws -> UInt { try decoder(key).integer(type) }
        func decode(_ type: UInt8.Type, forKey key: Key) throws -> UInt8 { try decoder(key).integer(type) }
        func decode(_ type: UInt16.Type, forKey key: Key) throws -> UInt16 { try decoder(key).integer(type) }
        func decode(_ type: UInt32.Type, forKey key: Key) throws -> UInt32 { try decoder(key).integer(type) }
        func decode(_ type: UInt64.Type, forKey key: Key) throws -> UInt64 { try decoder(key).integer(type) }

        func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
            try decoder(key).decode(type)
        }

        func nestedContainer<Other: CodingKey>(
            keyedBy type: Other.Type, forKey key: Key
        ) throws -> KeyedDecodingContainer<Other> {
            try decoder(key).container(keyedBy: type)
        }

        func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
            try decoder(key).unkeyedContainer()
        }

        func superDecoder() throws -> any Decoder { try decoder(SuperKey()) }
        func superDecoder(forKey key: Key) throws -> any Decoder { try decoder(key) }
    }

    /// An array whose elements are decoded one after the other.
    private struct Unkeyed: UnkeyedDecodingContainer {
        let elements: [PropertyList]
        let path: CodingPath
        var currentIndex = 0
        var codingPath: [any CodingKey] { path.keys }
        var count: Int? { elements.count }
        var isAtEnd: Bool { currentIndex == elements.count }

        init(elements: [PropertyList], path: CodingPath) {
            self.elements = elements
            self.path = path
        }

        /// Decodes the next element. If that fails, the position does not change, so that another type can be tried.
        private mutating func next<Value>(_ read: (MessageDecoder) throws -> Value) throws -> Value {
            let place = path.appending(place: currentIndex)
            guard !isAtEnd else {
                throw DecodingError.valueNotFound(
                    Value.self, .init(codingPath: place.keys, debugDescription: "the array is at its end"))
            }
            let value = try read(MessageDecoder(value: elements[currentIndex], path: place))
            currentIndex += 1
            return value
        }

        mutating func decodeNil() throws -> Bool {
            let isNull = try next { $0.isNull }
            // Only a nil is consumed; any other element remains the next one.
            if !isNull { currentIndex -= 1 }
            return isNull
        }

        mutating func decode(_ type: Bool.Type) throws -> Bool { try next { try $0.boolean() } }
        mutating func decode(_ type: String.Type) throws -> String { try next { try $0.string() } }
        mutating func decode(_ type: Double.Type) throws -> Double { try next { try $0.number(type) } }
        mutating func decode(_ type: Float.Type) throws -> Float { try next { try $0.number(type) } }
        mutating func decode(_ type: Int.Type) throws -> Int { try next { try $0.integer(type) } }
        mutating func decode(_ type: Int8.Type) throws -> Int8 { try next { try $0.integer(type) } }
        mutating func decode(_ type: Int16.Type) throws -> Int16 { try next { try $0.integer(type) } }
        mutating func decode(_ type: Int32.Type) throws -> Int32 { try next { try $0.integer(type) } }
        mutating func decode(_ type: Int64.Type) throws -> Int64 { try next { try $0.integer(type) } }
        mutating func decode(_ type: UInt.Type) throws -> UInt { try next { try $0.integer(type) } }
        mutating func decode(_ type: UInt8.Type) throws -> UInt8 { try next { try $0.integer(type) } }
        mutating func decode(_ type: UInt16.Type) throws -> UInt16 { try next { try $0.integer(type) } }
        mutating func decode(_ type: UInt32.Type) throws -> UInt32 { try next { try $0.integer(type) } }
        mutating func decode(_ type: UInt64.Type) throws -> UInt64 { try next { try $0.integer(type) } }
        mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value { try next { try $0.decode(type) } }

        mutating func nestedContainer<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
            try next { try $0.container(keyedBy: type) }
        }

        mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
            try next { try $0.unkeyedContainer() }
        }

        mutating func superDecoder() throws -> any Decoder { try next { $0 } }
    }

    /// A value that is decoded as a whole.
    private struct Single: SingleValueDecodingContainer {
        let decoder: MessageDecoder
        var codingPath: [any CodingKey] { decoder.codingPath }

        func decodeNil() -> Bool { decoder.isNull }
        func decode(_ type: Bool.Type) throws -> Bool { try decoder.boolean() }
        func decode(_ type: String.Type) throws -> String { try decoder.string() }
        func decode(_ type: Double.Type) throws -> Double { try decoder.number(type) }
        func decode(_ type: Float.Type) throws -> Float { try decoder.number(type) }
        func decode(_ type: Int.Type) throws -> Int { try decoder.integer(type) }
        func decode(_ type: Int8.Type) throws -> Int8 { try decoder.integer(type) }
        func decode(_ type: Int16.Type) throws -> Int16 { try decoder.integer(type) }
        func decode(_ type: Int32.Type) throws -> Int32 { try decoder.integer(type) }
        func decode(_ type: Int64.Type) throws -> Int64 { try decoder.integer(type) }
        func decode(_ type: UInt.Type) throws -> UInt { try decoder.integer(type) }
        func decode(_ type: UInt8.Type) throws -> UInt8 { try decoder.integer(type) }
        func decode(_ type: UInt16.Type) throws -> UInt16 { try decoder.integer(type) }
        func decode(_ type: UInt32.Type) throws -> UInt32 { try decoder.integer(type) }
        func decode(_ type: UInt64.Type) throws -> UInt64 { try decoder.integer(type) }
        func decode<Value: Decodable>(_ type: Value.Type) throws -> Value { try decoder.decode(type) }
    }
}

extension PropertyList {
    /// The kind of the value, for error messages.
    fileprivate var kind: String {
        switch self {
        case .string: "a string"
        case .boolean: "a boolean"
        case .uint8, .int16, .uint16, .int32, .uint32, .int64, .uint64: "an integer"
        case .double: "a floating-point number"
        case .data: "data"
        case .date: "a date"
        case .array: "an array"
        case .dictionary: "a dictionary"
        }
    }
}
