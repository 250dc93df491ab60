// SPDX-License-Identifier: Apache-2.0
import CarillonJSON

/// The encoding of property lists as JSON (RFC 8259), for `carillon`, the method ``PostJSON`` and the bridge.
///
/// Integers and floating-point numbers stay apart: a number without fraction and exponent is an integer, `1.0` is not.
/// Types without a JSON equivalent become an object with one key: data as `{"$data": "<base64>"}`, a date as `{"$date":
/// "<ISO 8601>"}`, a number that is not finite as `{"$double": "nan" | "inf" | "-inf"}`. Reading restores them. JSON
/// has one integer type, so the width of an integer is lost.
public enum PropertyListJSON {
    /// An error in a JSON text or in one of its values.
    public struct Failure: Error, CustomStringConvertible {
        private let reason: String
        /// The components of the path to the value, the innermost first.
        private var path: [String] = []

        init(_ reason: String) { self.reason = reason }

        /// Returns the same error with a component of the path in front. Paths are assembled only after an error.
        fileprivate func inside(_ step: String) -> Failure {
            var outer = self
            outer.path.append(step)
            return outer
        }

        public var description: String {
            path.isEmpty ? reason : "\(path.reversed().joined()): \(reason)"
        }
    }

    // MARK: Reading

    /// Parses a JSON object as a userInfo.
    ///
    /// - Throws: ``Failure`` for a text that is not a JSON object, for `null`, and for a number that fits no integer
    ///   type.
    public static func userInfo(from text: String) throws(Failure) -> [String: PropertyList] {
        let value: JSON
        do throws(JSON.Malformed) {
            value = try JSON(text)
        } catch {
            throw Failure("not valid JSON: \(error)")
        }
        return try userInfo(from: value)
    }

    /// Converts a parsed JSON object to a userInfo.
    public static func userInfo(from value: JSON) throws(Failure) -> [String: PropertyList] {
        guard case .object(let members) = value else { throw Failure("the JSON is not an object") }
        do throws(Failure) {
            return try dictionary(members)
        } catch {
            throw error.inside("userInfo")
        }
    }

    /// Converts a JSON number: an integer if it has neither fraction nor exponent.
    ///
    /// - Throws: ``Failure`` for a number outside the range of 64-bit integers or of floating-point numbers.
    public static func number(_ digits: String) throws(Failure) -> PropertyList {
        guard digits.utf8.contains(where: { ".eE".utf8.contains($0) }) else {
            if let integer = Int64(digits) { return .int64(integer) }
            if let integer = UInt64(digits) { return .uint64(integer) }
            throw Failure("\(shown(digits)) is out of the range of 64-bit integers")
        }
        guard let double = Double(digits), double.isFinite else {
            throw Failure("\(shown(digits)) is out of the range of floating-point numbers")
        }
        return .double(double)
    }

    /// Returns a text for an error message, shortened to 64 characters.
    private static func shown(_ text: String) -> String {
        text.utf8.count > 64 ? text.prefix(64) + "…" : text
    }

    private static func dictionary(_ members: [String: JSON]) throws(Failure) -> [String: PropertyList] {
        var result: [String: PropertyList] = [:]
        for (key, value) in members {
            do throws(Failure) {
                result[key] = try propertyList(value)
            } catch {
                throw error.inside("." + shown(key))
            }
        }
        return result
    }

    private static func propertyList(_ value: JSON) throws(Failure) -> PropertyList {
        switch value {
        case .null: throw Failure("null is not a property-list value")
        case .boolean(let value): return .boolean(value)
        case .number(let digits): return try number(digits)
        case .string(let text): return .string(text)
        case .array(let elements):
            var result: [PropertyList] = []
            for (position, element) in elements.enumerated() {
                do throws(Failure) {
                    result.append(try propertyList(element))
                } catch {
                    throw error.inside("[\(position)]")
                }
            }
            return .array(result)
        case .object(let members):
            if let value = try tagged(members) { return value }
            return .dictionary(try dictionary(members))
        }
    }

    /// Returns the value of an object such as `{"$data": …}`; nil for an ordinary object.
    private static func tagged(_ members: [String: JSON]) throws(Failure) -> PropertyList? {
        guard members.count == 1, let (key, value) = members.first, let text = value.text else { return nil }
        switch key {
        case "$data":
            guard let data = Base64.bytes(from: text) else {
                throw Failure("'$data' is not base64")
            }
            return .data(data)
        case "$date":
            guard let microseconds = ISO8601Date.microseconds(from: text) else {
                throw Failure("'$date' is not like 2026-11-21T09:30:00Z")
            }
            return .date(microsecondsSince1970: microseconds)
        case "$double":
            guard let double = ["nan": Double.nan, "inf": .infinity, "-inf": -.infinity][text] else {
                throw Failure("'$double' is none of nan, inf, -inf")
            }
            return .double(double)
        default:
            return nil
        }
    }

    // MARK: Writing

    /// Returns one line of JSON, with sorted keys.
    public static func text(_ value: PropertyList) -> String {
        switch value {
        case .string(let text): return JSON.quoted(text)
        case .boolean(let value): return value ? "true" : "false"
        case .uint8(let value): return String(value)
        case .int16(let value): return String(value)
        case .uint16(let value): return String(value)
        case .int32(let value): return String(value)
        case .uint32(let value): return String(value)
        case .int64(let value): return String(value)
        case .uint64(let value): return String(value)
        case .double(let value):
            // Swift writes 1.0 as "1.0" and 1e300 as "1e+300": both are JSON, and both read as floating-point numbers.
            // All NaNs become "nan", without sign and payload.
            if value.isFinite { return "\(value)" }
            return #"{"$double": "\#(value.isNaN ? "nan" : value < 0 ? "-inf" : "inf")"}"#
        case .data(let bytes): return #"{"$data": "\#(Base64.text(bytes))"}"#
        case .date(let microseconds): return #"{"$date": "\#(ISO8601Date.text(microseconds))"}"#
        case .array(let elements): return "[" + elements.map(text).joined(separator: ", ") + "]"
        case .dictionary(let entries):
            return object(entries.sorted { $0.key < $1.key }.map { ($0.key, text($0.value)) })
        }
    }

    /// Returns a JSON object.
    ///
    /// - Parameter members: The members in their order, with values as JSON.
    public static func object(_ members: [(key: String, value: String)]) -> String {
        "{" + members.map { "\(JSON.quoted($0.key)): \($0.value)" }.joined(separator: ", ") + "}"
    }

    /// Returns a JSON string, safe to print on a terminal.
    public static func quoted(_ text: String) -> String { JSON.quoted(text) }

    /// Whether a character could move the cursor, break the line, or change the direction of text on a terminal.
    public static func isDeceptive(_ scalar: Unicode.Scalar) -> Bool { JSON.isDeceptive(scalar) }
}
