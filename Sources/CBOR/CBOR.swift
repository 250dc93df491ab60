// SPDX-License-Identifier: Apache-2.0
/// A data item of CBOR (RFC 8949).
///
/// The width of an integer is kept, so that what was written with more bytes than it needs is read as that.
public indirect enum CBOR: Hashable, Sendable {
    /// How many bytes an integer takes. One of 0 to 23 in the head's own byte counts as one byte.
    public enum Width: Sendable {
        case one, two, four, eight
    }

    /// A pair of a map. Keys are in the order in which they stand.
    public struct Entry: Hashable, Sendable {
        public let key: CBOR
        public let value: CBOR

        public init(_ key: CBOR, _ value: CBOR) {
            self.key = key
            self.value = value
        }
    }

    /// A number that is not negative. Of the width only the low bytes of it count.
    case unsigned(UInt64, Width)
    /// The number -1 - n.
    case negative(UInt64, Width)
    case bytes([UInt8])
    case text(String)
    case array([CBOR])
    case map([Entry])
    case tagged(UInt64, CBOR)
    /// Of half, single and double precision.
    case double(Double)
    case boolean(Bool)
    case null
    case undefined

    /// Items in each other, at most; a tag counts as one.
    public static let maximumDepth = 256

    /// What is wrong with bytes that are no CBOR.
    public struct Malformed: Error, Equatable, CustomStringConvertible {
        /// Where, in bytes from the beginning.
        public let position: Int
        public let reason: String

        public var description: String { "\(reason) (byte \(position))" }
    }

    /// Reads one data item, which the bytes are to hold and nothing else.
    ///
    /// What it takes in memory is bounded by the number of bytes, whatever lengths they claim.
    ///
    /// - Throws: ``Malformed`` for what is not well-formed, text that is not UTF-8, more than ``maximumDepth`` items in
    ///   each other, and simple values that have no meaning.
    public init(_ bytes: [UInt8]) throws(Malformed) {
        var reader = CBORReader(bytes)
        self = try reader.readAll()
    }
}
