// SPDX-License-Identifier: Apache-2.0
/// A JSON value (RFC 8259).
///
/// The service and the command do not use Foundation. Its parsers also do not preserve three cases that a poster has to
/// be informed of: the difference of `1` and `1.0`, integers beyond 64 bits, and duplicate keys.
public indirect enum JSON: Equatable, Sendable {
    case null
    case boolean(Bool)
    /// A number as written in the text, which follows the grammar of the RFC.
    case number(String)
    case string(String)
    case array([JSON])
    case object([String: JSON])

    /// The maximum depth of nested collections, as the input may be untrusted.
    public static let maximumDepth = 256

    /// An error in a text.
    public struct Malformed: Error, Equatable, CustomStringConvertible {
        /// The offset in bytes, from 0.
        public let position: Int
        public let reason: String

        public var description: String { "\(reason) at byte \(position)" }
    }

    /// Parses a text that consists of one value.
    ///
    /// - Parameter isRepairing: Whether invalid UTF-8 becomes U+FFFD, and the last value of a duplicate key counts. It
    ///   is meant for programs that forward foreign texts.
    /// - Throws: ``Malformed``, without repairs also for these cases, and for values nested deeper than
    ///   ``maximumDepth``.
    public init(_ bytes: some Collection<UInt8>, repairing isRepairing: Bool = false) throws(Malformed) {
        var reader = JSONReader(bytes: Array(bytes), isRepairing: isRepairing)
        self = try reader.readDocument()
    }

    public init(_ text: String) throws(Malformed) {
        try self.init(text.utf8)
    }

    /// The member of an object; nil for other values, and for a missing member.
    public subscript(key: String) -> JSON? {
        if case .object(let members) = self { members[key] } else { nil }
    }

    /// This value without `null` members and elements; nil if it is null itself.
    public var withoutNull: JSON? {
        switch self {
        case .null: nil
        case .boolean, .number, .string: self
        case .array(let elements): .array(elements.compactMap(\.withoutNull))
        case .object(let members): .object(members.compactMapValues(\.withoutNull))
        }
    }

    public var text: String? { if case .string(let text) = self { text } else { nil } }
    public var elements: [JSON] { if case .array(let elements) = self { elements } else { [] } }
    public var isTrue: Bool { self == .boolean(true) }
    /// The value of a number that is written as an integer of 64 bits.
    public var integer: Int64? { if case .number(let digits) = self { Int64(digits) } else { nil } }
}

// MARK: Writing

extension JSON {
    /// Returns a JSON string. Control characters and characters that change the text direction are escaped, so that it
    /// is safe to print on a terminal.
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

    /// Whether a scalar could move the cursor, break the line, or change the order of the displayed text.
    public static func isDeceptive(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x061C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069: true
        default: scalar.properties.generalCategory == .control
        }
    }
}
