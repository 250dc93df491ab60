// SPDX-License-Identifier: Apache-2.0
/// A JSON value (RFC 8259), with its parser and with the writer of strings. The service, the command, the bridge and
/// the sources of activity use it.
///
/// It replaces the parsers of Foundation, which the service and the command do not use. Those parsers also lose three
/// properties of a text: the difference of `1` and `1.0`, integers beyond 64 bits, and duplicate keys. A poster must
/// get an error or the exact value in these cases.
public indirect enum JSON: Equatable, Sendable {
    case null
    case boolean(Bool)
    /// A number as it is written in the text.
    case number(String)
    case string(String)
    case array([JSON])
    case object([String: JSON])

    /// The maximum depth of nested arrays and objects. It bounds the recursion for untrusted input.
    public static let maximumDepth = 256

    /// The error for a text that is no JSON.
    public struct Malformed: Error, Equatable, CustomStringConvertible {
        /// The offset of the fault in bytes, from 0.
        public let position: Int
        public let reason: String

        public var description: String { "\(reason) at byte \(position)" }
    }

    /// Parses a text that has exactly one value.
    ///
    /// - Parameter isRepairing: whether faults are repaired: invalid UTF-8 becomes U+FFFD, and of a duplicate key the
    ///   last value counts. It is for texts of other programs that cannot be corrected.
    /// - Throws: ``Malformed`` for a text that is no JSON, and for values nested deeper than ``maximumDepth``. Without
    ///   repairs it is also thrown for invalid UTF-8 and duplicate keys.
    public init(_ bytes: some Collection<UInt8>, repairing isRepairing: Bool = false) throws(Malformed) {
        var reader = JSONReader(bytes: Array(bytes), isRepairing: isRepairing)
        self = try reader.readDocument()
    }

    public init(_ text: String) throws(Malformed) {
        try self.init(text.utf8)
    }

    /// The member of an object; nil for a missing member, and for a value that is no object.
    public subscript(key: String) -> JSON? {
        if case .object(let members) = self { members[key] } else { nil }
    }

    /// This value without `null` members and elements, at any depth; nil if it is `null` itself. Property lists have no
    /// null.
    public var withoutNull: JSON? {
        switch self {
        case .null: nil
        case .boolean, .number, .string: self
        case .array(let elements): .array(elements.compactMap(\.withoutNull))
        case .object(let members): .object(members.compactMapValues(\.withoutNull))
        }
    }

    /// The content of a string; nil for other values.
    public var text: String? { if case .string(let text) = self { text } else { nil } }
    /// The elements of an array; empty for other values.
    public var elements: [JSON] { if case .array(let elements) = self { elements } else { [] } }
    /// Whether it is the value `true`.
    public var isTrue: Bool { self == .boolean(true) }
    /// The value of a number that is written as an integer and fits into 64 bits; otherwise nil.
    public var integer: Int64? { if case .number(let digits) = self { Int64(digits) } else { nil } }
}

// MARK: Writing

extension JSON {
    /// Returns a text as a JSON string. Control characters and characters that change the direction of text are
    /// escaped, so that the string is safe to print on a terminal.
    public static func quoted(_ text: String) -> String {
        var result = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            case "\t": result += "\\t"
            case "\r": result += "\\r"
            case _ where isDeceptive(scalar):
                let digits = String(scalar.value, radix: 16)
                result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result + "\""
    }

    /// Whether a character could move the cursor, break the line, or change the order of the displayed text.
    public static func isDeceptive(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x061C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069: true
        default: scalar.properties.generalCategory == .control
        }
    }
}
