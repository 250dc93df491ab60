// SPDX-License-Identifier: Apache-2.0
/// A CBOR data item (RFC 8949), with its parser and encoder. The bridge uses it for the payload of MQTT messages.
///
/// An integer keeps the width of its encoding. Between bridges the width states the type of the integer: an `Int32` of
/// 5 is encoded in four bytes, although one byte would do, and is an `Int32` again when it is read.
public indirect enum CBOR: Hashable, Sendable {
    /// The number of bytes of an integer in its encoding. A number of 0 to 23 is in the initial byte, and counts as one
    /// byte.
    public enum Width: Sendable {
        case one, two, four, eight
    }

    /// A pair of a map. A map keeps the order of its pairs.
    public struct Entry: Hashable, Sendable {
        public let key: CBOR
        public let value: CBOR

        public init(_ key: CBOR, _ value: CBOR) {
            self.key = key
            self.value = value
        }
    }

    /// A number that is not negative. If it exceeds the width, only its low bytes are encoded.
    case unsigned(UInt64, Width)
    /// The number -1 - n, for the stated n.
    case negative(UInt64, Width)
    case bytes([UInt8])
    case text(String)
    case array([CBOR])
    case map([Entry])
    /// An item with a tag number, which states its meaning.
    case tagged(UInt64, CBOR)
    /// A floating-point number. Half and single precision are read, and double precision is written.
    case double(Double)
    case boolean(Bool)
    case null
    case undefined

    /// The maximum depth of nested items; a tag counts as one level. It bounds the recursion for untrusted input.
    public static let maximumDepth = 256

    /// The error for bytes that are no CBOR.
    public struct Malformed: Error, Equatable, CustomStringConvertible {
        /// The offset of the fault in bytes, from 0.
        public let position: Int
        public let reason: String

        public var description: String { "\(reason) (byte \(position))" }
    }

    /// Parses bytes that have exactly one data item.
    ///
    /// The memory in use is bounded by the number of bytes, regardless of the lengths that they state.
    ///
    /// - Throws: ``Malformed`` for malformed input, text that is not UTF-8, nesting deeper than ``maximumDepth``, and
    ///   simple values that are not assigned.
    public init(_ bytes: [UInt8]) throws(Malformed) {
        var reader = CBORReader(bytes)
        self = try reader.readAll()
    }
}
