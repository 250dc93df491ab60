// SPDX-License-Identifier: Apache-2.0
/// A value of JSON (RFC 8259).
///
/// Foundation has readers, but the service and the command do without Foundation; and none of them keeps `1` and `1.0`
/// apart, integers beyond 64 bits, or a key that is given twice, all of which somebody who posts has to be told.
public indirect enum JSON: Equatable, Sendable {
    case null
    case boolean(Bool)
    /// As it is written, which follows the grammar of the RFC.
    case number(String)
    case string(String)
    case array([JSON])
    case object([String: JSON])

    /// Collections inside each other at most: what is read may come from anybody.
    public static let maximumDepth = 256

    /// What is wrong with a text.
    public struct Malformed: Error, Equatable, CustomStringConvertible {
        /// In bytes, from 0.
        public let position: Int
        public let reason: String

        public var description: String { "\(reason) at byte \(position)" }
    }

    /// Reads a text that is one value.
    ///
    /// - Parameter isRepairing: take text that is not UTF-8 for U+FFFD, and the last of a key that an object has twice:
    ///   for what comes from a program that hands others' texts on.
    /// - Throws: ``Malformed`` else also for these, and for what is nested deeper than ``maximumDepth``.
    public init(_ bytes: some Collection<UInt8>, repairing isRepairing: Bool = false) throws(Malformed) {
        var reader = JSONReader(bytes: Array(bytes), isRepairing: isRepairing)
        self = try reader.readDocument()
    }

    public init(_ text: String) throws(Malformed) {
        try self.init(text.utf8)
    }

    /// The member of an object; nil for other values and where it is missing.
    public subscript(key: String) -> JSON? {
        if case .object(let members) = self { members[key] } else { nil }
    }

    /// This value without any `null`: members and elements that are null are left out; nil when it is null itself.
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
    /// A number that is written as an integer and is one of 64 bits.
    public var integer: Int64? { if case .number(let digits) = self { Int64(digits) } else { nil } }
}

// MARK: Writing

extension JSON {
    /// A JSON string. Control characters and those that turn the direction of text round are escaped, so that it is
    /// safe on a terminal.
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

    /// Whether a scalar could move the cursor, break the line, or show text in another order than it stands.
    public static func isDeceptive(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x061C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069: true
        default: scalar.properties.generalCategory == .control
        }
    }
}
