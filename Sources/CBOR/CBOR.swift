// SPDX-License-Identifier: Apache-2.0
/// A CBOR data item (RFC 8949).
///
/// The width of an integer is preserved, so that a number with a longer encoding than necessary keeps it.
public indirect enum CBOR: Hashable, Sendable {
    /// The number of bytes of an integer. A number of 0 to 23 in the head's own byte counts as one byte.
    public enum Width: Sendable {
        case one, two, four, eight
    }

    /// A pair of a map. The order of the pairs is preserved.
    public struct Entry: Hashable, Sendable {
        public let key: CBOR
        public let value: CBOR

        public init(_ key: CBOR, _ value: CBOR) {
            self.key = key
            self.value = value
        }
    }

    /// A number that is not negative. Only the low bytes of that width count.
    case unsigned(UInt64, Width)
    /// The number -1 - n.
    case negative(UInt64, Width)
    case bytes([UInt8])
    case text(String)
    case array([CBOR])
    case map([Entry])
    case tagged(UInt64, CBOR)
    /// A number of half, single or double precision.
    case double(Double)
    case boolean(Bool)
    case null
    case undefined

    /// The maximum depth of nested items; a tag counts as one.
    public static let maximumDepth = 256

    /// An error in the bytes.
    public struct Malformed: Error, Equatable, CustomStringConvertible {
        /// The offset in bytes, from the beginning.
        public let position: Int
        public let reason: String

        public var description: String { "\(reason) (byte \(position))" }
    }

    /// Parses bytes that consist of one data item.
    ///
    /// The memory in use is bounded by the number of bytes, regardless of the lengths that they claim.
    ///
    /// - Throws: ``Malformed`` for malformed input, text that is not UTF-8, nesting deeper than ``maximumDepth``, and
    ///   undefined simple values.
    public init(_ bytes: [UInt8]) throws(Malformed) {
        var reader = CBORReader(bytes)
        self = try reader.readAll()
    }
}
