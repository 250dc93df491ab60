// SPDX-License-Identifier: Apache-2.0
/// A type of the D-Bus specification, identified by its letter, such as `s` for a string. Signatures consist of these
/// letters, except those of structures and dictionary entries.
public struct TypeCode: RawRepresentable, Hashable, Sendable {
    /// The ASCII code of the letter; 0 for ``end``.
    public let rawValue: Int32

    public init(rawValue: Int32) {
        self.rawValue = rawValue
    }

    private init(_ letter: Unicode.Scalar) {
        rawValue = Int32(letter.value)
    }

    /// The type that ``MessageReader`` reports behind the last value.
    public static let end = TypeCode(rawValue: 0)
    public static let byte = TypeCode("y")
    public static let boolean = TypeCode("b")
    public static let int16 = TypeCode("n")
    public static let uint16 = TypeCode("q")
    public static let int32 = TypeCode("i")
    public static let uint32 = TypeCode("u")
    public static let int64 = TypeCode("x")
    public static let uint64 = TypeCode("t")
    public static let double = TypeCode("d")
    public static let string = TypeCode("s")
    public static let objectPath = TypeCode("o")
    public static let signature = TypeCode("g")
    public static let unixFD = TypeCode("h")
    public static let array = TypeCode("a")
    public static let variant = TypeCode("v")
    /// A structure, which signatures write as `(…)` with its members.
    public static let structure = TypeCode("r")
    /// A dictionary entry, which signatures write as `{…}`.
    public static let dictEntry = TypeCode("e")

    /// The letter, for error messages, and as the signature of one value of a basic type.
    public var letter: Character { Character(Unicode.Scalar(UInt8(truncatingIfNeeded: rawValue))) }

    /// The size in bytes, which is also the alignment; 0 for types without a fixed size.
    public var fixedSize: Int {
        switch self {
        case .byte: 1
        case .int16, .uint16: 2
        case .boolean, .int32, .uint32, .unixFD: 4
        case .int64, .uint64, .double: 8
        default: 0
        }
    }
}
