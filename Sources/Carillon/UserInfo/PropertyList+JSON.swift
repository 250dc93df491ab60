import Foundation
import NotificationCore

/// Property lists as JSON (RFC 8259).
///
/// Integers and floating-point numbers stay apart: a number without fraction and exponent is an integer, `1.0` is not.
/// What JSON lacks is written as an object with one key: data as `{"$data": "<base64>"}`, a date as
/// `{"$date": "<ISO 8601>"}`, a number that is not finite as `{"$double": "nan" | "inf" | "-inf"}`. Read back, these
/// become what they were. JSON has one integer type, so the width of an integer is not kept.
public enum PropertyListJSON {
    /// What is wrong with a text or a value in it.
    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    // MARK: Reading

    /// Reads a JSON object as a userInfo.
    ///
    /// - Throws: ``Failure`` for what is no JSON, no object, `null`, or a number that no integer type holds.
    public static func userInfo(from text: String) throws(Failure) -> [String: PropertyList] {
        let value: Any
        do {
            value = try JSONSerialization.jsonObject(with: Data(text.utf8), options: .fragmentsAllowed)
        } catch {
            let reason = (error as NSError).userInfo[NSDebugDescriptionErrorKey] as? String
            throw Failure(description: "not valid JSON: \(reason ?? error.localizedDescription)")
        }
        guard let object = value as? [String: Any] else { throw Failure(description: "the JSON is no object") }
        if let key = repeatedKey(in: text) { throw Failure(description: "the key '\(key)' is given twice") }
        return try dictionary(object, path: "userInfo")
    }

    /// A key that an object in `text`, which is valid JSON, has twice. JSONSerialization keeps one of the values, silently.
    private static func repeatedKey(in text: String) -> String? {
        let bytes = Array(text.utf8)
        var keys: [Set<String>] = []
        var literal = 0..<0
        var index = 0
        while index < bytes.count {
            switch bytes[index] {
            case UInt8(ascii: "\""):
                let start = index
                index += 1
                while bytes[index] != UInt8(ascii: "\"") { index += bytes[index] == UInt8(ascii: "\\") ? 2 : 1 }
                literal = start..<index + 1
            case UInt8(ascii: "{"), UInt8(ascii: "["): keys.append([])
            case UInt8(ascii: "}"), UInt8(ascii: "]"): keys.removeLast()
            case UInt8(ascii: ":"):
                // Decoded, as "a" and "\u0061" are the same key.
                let key = try? JSONSerialization.jsonObject(with: Data(bytes[literal]), options: .fragmentsAllowed)
                if let key = key as? String, !keys[keys.count - 1].insert(key).inserted { return key }
            default: break
            }
            index += 1
        }
        return nil
    }

    private static func dictionary(_ object: [String: Any], path: String) throws(Failure) -> [String: PropertyList] {
        var result: [String: PropertyList] = [:]
        for (key, value) in object { result[key] = try propertyList(value, path: "\(path).\(key)") }
        return result
    }

    private static func propertyList(_ value: Any, path: String) throws(Failure) -> PropertyList {
        switch value {
        case let text as String:
            return .string(text)
        case let elements as [Any]:
            var result: [PropertyList] = []
            for (position, element) in elements.enumerated() {
                result.append(try propertyList(element, path: "\(path)[\(position)]"))
            }
            return .array(result)
        case let object as [String: Any]:
            if let value = try tagged(object, path: path) { return value }
            return .dictionary(try dictionary(object, path: path))
        case let number as NSDecimalNumber:
            // What neither a 64-bit integer nor the digits of a double hold exactly; the least integer comes so, too.
            if number == NSDecimalNumber(value: Int64.min) { return .int64(.min) }
            guard number.doubleValue.magnitude < 0x1p63 else {
                throw Failure(description: "\(path): \(number) is out of the range of 64-bit integers")
            }
            return .double(number.doubleValue)
        case let number as NSNumber:
            return try self.number(number, path: path)
        default:
            throw Failure(description: "\(path): null is no property-list value")
        }
    }

    private static func number(_ number: NSNumber, path: String) throws(Failure) -> PropertyList {
        // NSNumber remembers what it was made from; JSONSerialization makes no 8-bit integers, so "c" is a boolean.
        switch String(cString: number.objCType) {
        case "c", "B": return .boolean(number.boolValue)
        case "d", "f":
            guard number.doubleValue.isFinite else { throw Failure(description: "\(path): the number is too large") }
            return .double(number.doubleValue)
        case "Q": return number.uint64Value > Int64.max ? .uint64(number.uint64Value) : .int64(number.int64Value)
        default: return .int64(number.int64Value)
        }
    }

    private static func tagged(_ object: [String: Any], path: String) throws(Failure) -> PropertyList? {
        guard object.count == 1, let (key, value) = object.first, let text = value as? String else { return nil }
        switch key {
        case "$data":
            guard let data = Data(base64Encoded: text) else {
                throw Failure(description: "\(path): '$data' is not base64")
            }
            return .data(Array(data))
        case "$date":
            guard let microseconds = ISO8601Date.microseconds(from: text) else {
                throw Failure(description: "\(path): '$date' is not like 2026-11-21T09:30:00Z")
            }
            return .date(microsecondsSince1970: microseconds)
        case "$double":
            guard let double = Double(text), !double.isFinite else {
                throw Failure(description: "\(path): '$double' is none of nan, inf, -inf")
            }
            return .double(double)
        default:
            return nil
        }
    }

    // MARK: Writing

    /// One line of JSON, with the keys of objects sorted.
    public static func text(_ value: PropertyList) -> String {
        switch value {
        case .string(let text): return quoted(text)
        case .boolean(let value): return value ? "true" : "false"
        case .uint8(let value): return String(value)
        case .int16(let value): return String(value)
        case .uint16(let value): return String(value)
        case .int32(let value): return String(value)
        case .uint32(let value): return String(value)
        case .int64(let value): return String(value)
        case .uint64(let value): return String(value)
        case .double(let value):
            // Swift writes 1.0 as "1.0" and 1e300 as "1e+300": JSON both, and never an integer.
            return value.isFinite ? "\(value)" : #"{"$double": "\#(value)"}"#
        case .data(let bytes): return #"{"$data": "\#(Data(bytes).base64EncodedString())"}"#
        case .date(let microseconds): return #"{"$date": "\#(ISO8601Date.text(microseconds))"}"#
        case .array(let elements): return "[" + elements.map(text).joined(separator: ", ") + "]"
        case .dictionary(let entries):
            let members = entries.sorted { $0.key < $1.key }.map { "\(quoted($0.key)): \(text($0.value))" }
            return "{" + members.joined(separator: ", ") + "}"
        }
    }

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
