// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire
import Foundation

/// An encoder of `Encodable` messages into property lists. The result is that of Foundation's encoder of property
/// lists. It is produced directly in the types of the wire format, without Foundation's objects.
struct MessageEncoder: Encoder {
    /// A value under construction. It is an object, because a type may encode through several containers that share it,
    /// and may add to a nested container at any time until the whole message is encoded.
    private final class Node {
        /// The form of the value, which the first container decides.
        enum Kind {
            /// No container has been requested.
            case nothing
            /// A value that is no collection.
            case single
            case dictionary
            case array
        }

        var kind = Kind.nothing
        var single: PropertyList?
        var entries: [String: Element] = [:]
        var elements: [Element] = []

        /// The finished value.
        var value: PropertyList {
            switch kind {
            case .single: single!
            // A type that encodes nothing has no properties, and becomes an empty dictionary.
            case .nothing, .dictionary: .dictionary(entries.mapValues(\.value))
            case .array: .array(elements.map(\.value))
            }
        }

        /// Sets the kind of the value. Several containers of the same kind share it.
        func become(_ other: Kind, at path: CodingPath) {
            precondition(
                kind == .nothing || kind == other,
                "the type requests containers of different kinds at userInfo\(path.text)")
            kind = other
        }
    }

    /// An element of a collection: a finished value, or one under construction.
    private enum Element {
        case ready(PropertyList)
        case unfinished(Node)

        var value: PropertyList {
            switch self {
            case .ready(let value): value
            case .unfinished(let node): node.value
            }
        }
    }

    /// The representation of nil in an encoded type. Property lists have no nil, and Foundation's coders write this
    /// text for it. The text itself is refused, because a reader could not distinguish the two.
    static let null = PropertyList.string("$null")

    private let node: Node
    private let path: CodingPath
    /// The number of collections around the value, which is limited.
    private let depth: Int

    var codingPath: [any CodingKey] { path.keys }
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    /// Encodes a message.
    ///
    /// - Throws: the errors of the value's own encoding, and
    ///   ``DistributedNotificationError/invalidUserInfo(keyPath:reason:)``.
    static func encode(_ value: some Encodable) throws -> PropertyList {
        // The value becomes the entries of the userInfo, so that no collection surrounds it.
        try element(of: value, at: .root, depth: 0).value
    }

    /// Encodes a value at a path.
    private static func element<Value: Encodable>(
        of value: Value, at path: @autoclosure () -> CodingPath, depth: Int
    ) throws -> Element {
        // The depth is checked before the recursion, which would never end for an object that contains itself.
        if depth > 0 { try UserInfoEncoder.checkDepth(depth - 1, at: { path().text }) }
        if let leaf = try leaf(of: value, at: path()) { return .ready(leaf) }
        let node = Node()
        try value.encode(to: MessageEncoder(node: node, path: path(), depth: depth))
        return .unfinished(node)
    }

    /// Returns the encoding of a value of a native type; nil for a type that encodes itself with containers.
    private static func leaf<Value>(of value: Value, at path: @autoclosure () -> CodingPath) throws -> PropertyList? {
        if Value.self == String.self || Value.self == Date.self { return try checked(value, at: path()) }
        if Value.self == Int.self { return .int64(Int64(value as! Int)) }
        if Value.self == Double.self { return .double(value as! Double) }
        if Value.self == Bool.self { return .boolean(value as! Bool) }
        if Value.self == Data.self { return .data([UInt8](value as! Data)) }
        return nil
    }

    /// Encodes a value, or refuses it with its path if the wire format cannot carry it.
    private static func checked(
        _ value: Any, at path: @autoclosure () -> CodingPath
    ) throws(DistributedNotificationError) -> PropertyList {
        let list = try UserInfoEncoder.value(value, at: { path().text })
        guard list != null else {
            throw .invalidUserInfo(
                keyPath: "userInfo\(path().text)", reason: "the text '$null' stands for nil in a message")
        }
        return list
    }

    /// Encodes an integer: as a signed 64-bit integer, or as an unsigned one if it is greater than that type's maximum.
    private static func integer(_ value: some FixedWidthInteger) -> PropertyList {
        Int64(exactly: value).map { .int64($0) } ?? .uint64(UInt64(truncatingIfNeeded: value))
    }

    // MARK: Containers

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
        node.become(.dictionary, at: path)
        return KeyedEncodingContainer(Keyed(node: node, path: path, depth: depth))
    }

    func unkeyedContainer() -> any UnkeyedEncodingContainer {
        node.become(.array, at: path)
        return Unkeyed(node: node, path: path, depth: depth)
    }

    func singleValueContainer() -> any SingleValueEncodingContainer { Single(encoder: self) }

    /// A dictionary whose keys are the properties of a type.
    private struct Keyed<Key: CodingKey>: KeyedEncodingContainerProtocol {
        let node: Node
        let path: CodingPath
        let depth: Int
        var codingPath: [any CodingKey] { path.keys }

        /// Adds an entry. A key with a NUL character is refused.
        private func put(_ element: Element, _ key: some CodingKey) throws {
            try UserInfoEncoder.checkDepth(depth, at: { path.text })
            let text = key.stringValue
            if text.holdsNUL { _ = try checked(text, at: path.appending(key)) }
            node.entries[text] = element
        }

        private func put(_ value: PropertyList, _ key: Key) throws { try put(.ready(value), key) }

        func encodeNil(forKey key: Key) throws { try put(null, key) }
        func encode(_ value: Bool, forKey key: Key) throws { try put(.boolean(value), key) }
        func encode(_ value: String, forKey key: Key) throws { try put(checked(value, at: path.appending(key)), key) }
        func encode(_ value: Double, forKey key: Key) throws { try put(.double(value), key) }
        func encode(_ value: Float, forKey key: Key) throws { try put(.double(Double(value)), key) }
        func encode(_ value: Int, forKey key: Key) throws { try put(integer(value), key) }
        func encode(_ value: Int8, forKey key: Key) throws { try put(integer(value), key) }
        func encode(_ value: Int16, forKey key: Key) throws { try put(integer(value), key) }
        func encode(_ value: Int32, forKey key: Key) throws { try put(integer(value), key) }
        func encode(_ value: Int64, forKey key: Key) throws { try put(integer(value), key) }
        func encode(_ value: UInt, forKey key: Key) throws { try put(integer(value), key) }
        func encode(_ value: UInt8, forKey key: Key) throws { try put(integer(value), key) }
        func encode(_ value: UInt16, forKey key: Key) throws { try put(integer(value), key) }
        func encode(_ value: UInt32, forKey key: Key) throws { try put(integer(value), key) }
        func encode(_ value: UInt64, forKey key: Key) throws { try put(integer(value), key) }

        func encode<Value: Encodable>(_ value: Value, forKey key: Key) throws {
            try put(element(of: value, at: path.appending(key), depth: depth + 1), key)
        }

        func nestedContainer<Other: CodingKey>(
            keyedBy type: Other.Type, forKey key: Key
        ) -> KeyedEncodingContainer<Other> {
            nestedEncoder(key).container(keyedBy: type)
        }

        func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
            nestedEncoder(key).unkeyedContainer()
        }
        func superEncoder() -> any Encoder { nestedEncoder(SuperKey()) }
        func superEncoder(forKey key: Key) -> any Encoder { nestedEncoder(key) }

        /// Returns an encoder for a nested value, to which the type may add until the whole message is encoded.
        private func nestedEncoder(_ key: some CodingKey) -> MessageEncoder {
            let other = Node()
            node.entries[key.stringValue] = .unfinished(other)
            return MessageEncoder(node: other, path: path.appending(key), depth: depth + 1)
        }
    }

    /// An array whose elements are encoded one after the other.
    private struct Unkeyed: UnkeyedEncodingContainer {
        let node: Node
        let path: CodingPath
        let depth: Int
        var codingPath: [any CodingKey] { path.keys }
        var count: Int { node.elements.count }
        /// The path of the next element.
        private var nextPath: CodingPath { path.appending(place: count) }

        private func put(_ element: Element) throws {
            try UserInfoEncoder.checkDepth(depth, at: { path.text })
            node.elements.append(element)
        }

        private func put(_ value: PropertyList) throws { try put(.ready(value)) }

        func encodeNil() throws { try put(null) }
        func encode(_ value: Bool) throws { try put(.boolean(value)) }
        func encode(_ value: String) throws { try put(checked(value, at: nextPath)) }
        func encode(_ value: Double) throws { try put(.double(value)) }
        func encode(_ value: Float) throws { try put(.double(Double(value))) }
        func encode(_ value: Int) throws { try put(integer(value)) }
        func encode(_ value: Int8) throws { try put(integer(value)) }
        func encode(_ value: Int16) throws { try put(integer(value)) }
        func encode(_ value: Int32) throws { try put(integer(value)) }
        func encode(_ value: Int64) throws { try put(integer(value)) }
        func encode(_ value: UInt) throws { try put(integer(value)) }
        func encode(_ value: UInt8) throws { try put(integer(value)) }
        func encode(_ value: UInt16) throws { try put(integer(value)) }
        func encode(_ value: UInt32) throws { try put(integer(value)) }
        func encode(_ value: UInt64) throws { try put(integer(value)) }

        func encode<Value: Encodable>(_ value: Value) throws {
            try put(element(of: value, at: nextPath, depth: depth + 1))
        }

        func nestedContainer<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
            nestedEncoder().container(keyedBy: type)
        }

        func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer { nestedEncoder().unkeyedContainer() }
        func superEncoder() -> any Encoder { nestedEncoder() }

        /// Returns an encoder for a nested value as the next element.
        private func nestedEncoder() -> MessageEncoder {
            let (other, place) = (Node(), nextPath)
            node.elements.append(.unfinished(other))
            return MessageEncoder(node: other, path: place, depth: depth + 1)
        }
    }

    /// A value that is encoded as a whole.
    private struct Single: SingleValueEncodingContainer {
        let encoder: MessageEncoder
        var codingPath: [any CodingKey] { encoder.codingPath }

        private func put(_ value: PropertyList) {
            encoder.node.become(.single, at: encoder.path)
            encoder.node.single = value
        }

        func encodeNil() { put(null) }
        func encode(_ value: Bool) { put(.boolean(value)) }
        func encode(_ value: String) throws { put(try checked(value, at: encoder.path)) }
        func encode(_ value: Double) { put(.double(value)) }
        func encode(_ value: Float) { put(.double(Double(value))) }
        func encode(_ value: Int) { put(integer(value)) }
        func encode(_ value: Int8) { put(integer(value)) }
        func encode(_ value: Int16) { put(integer(value)) }
        func encode(_ value: Int32) { put(integer(value)) }
        func encode(_ value: Int64) { put(integer(value)) }
        func encode(_ value: UInt) { put(integer(value)) }
        func encode(_ value: UInt8) { put(integer(value)) }
        func encode(_ value: UInt16) { put(integer(value)) }
        func encode(_ value: UInt32) { put(integer(value)) }
        func encode(_ value: UInt64) { put(integer(value)) }

        func encode<Value: Encodable>(_ value: Value) throws {
            if let leaf = try leaf(of: value, at: encoder.path) { return put(leaf) }
            try value.encode(to: encoder)
        }
    }
}
