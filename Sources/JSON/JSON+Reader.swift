// SPDX-License-Identifier: Apache-2.0
/// A recursive-descent parser of JSON from untrusted bytes, for ``JSON/init(_:repairing:)``. Each `read` method begins
/// at ``position`` and leaves it behind the value that it has read.
struct JSONReader {
    private let bytes: [UInt8]
    /// Whether invalid UTF-8 and duplicate keys are repaired, and not refused.
    private let isRepairing: Bool
    /// The offset of the next byte.
    private var position = 0

    init(bytes: [UInt8], isRepairing: Bool) {
        self.bytes = bytes
        self.isRepairing = isRepairing
    }

    /// Reads the whole text, which has one value.
    mutating func readDocument() throws(JSON.Malformed) -> JSON {
        let value = try readValue(depth: 0)
        skipSpace()
        guard position == bytes.count else { throw fault("unexpected bytes behind the value") }
        return value
    }

    /// Reads a value of any type.
    ///
    /// - Parameter depth: the number of collections around it.
    private mutating func readValue(depth: Int) throws(JSON.Malformed) -> JSON {
        guard depth < JSON.maximumDepth else { throw fault("more than \(JSON.maximumDepth) nested arrays and objects") }
        skipSpace()
        switch next {
        case UInt8(ascii: "{"): return .object(try readObject(depth: depth))
        case UInt8(ascii: "["): return .array(try readArray(depth: depth))
        case UInt8(ascii: "\""): return .string(try readString())
        case UInt8(ascii: "t"): return try readLiteral("true", .boolean(true))
        case UInt8(ascii: "f"): return try readLiteral("false", .boolean(false))
        case UInt8(ascii: "n"): return try readLiteral("null", .null)
        case UInt8(ascii: "-"): return .number(try readNumber())
        case let byte? where UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte: return .number(try readNumber())
        case nil: throw fault("the text ends")
        default: throw fault("no value")
        }
    }

    private mutating func readObject(depth: Int) throws(JSON.Malformed) -> [String: JSON] {
        var members: [String: JSON] = [:]
        position += 1
        guard !take("}") else { return members }
        repeat {
            skipSpace()
            let start = position
            let key = try readString()
            guard take(":") else { throw fault("no ':' behind a key") }
            let value = try readValue(depth: depth + 1)
            guard members.updateValue(value, forKey: key) == nil || isRepairing else {
                throw JSON.Malformed(position: start, reason: "the key '\(key)' is given twice")
            }
        } while take(",")
        guard take("}") else { throw fault("neither ',' nor '}'") }
        return members
    }

    private mutating func readArray(depth: Int) throws(JSON.Malformed) -> [JSON] {
        var elements: [JSON] = []
        position += 1
        guard !take("]") else { return elements }
        repeat { elements.append(try readValue(depth: depth + 1)) } while take(",")
        guard take("]") else { throw fault("neither ',' nor ']'") }
        return elements
    }

    private mutating func readString() throws(JSON.Malformed) -> String {
        guard next == UInt8(ascii: "\"") else { throw fault("no string") }
        let start = position
        position += 1
        var text: [UInt8] = []
        while let byte = next, byte != UInt8(ascii: "\"") {
            guard byte >= 0x20 else { throw fault("a control character in a string") }
            position += 1
            if byte == UInt8(ascii: "\\") {
                text += try readEscape()
            } else {
                text.append(byte)
            }
        }
        guard next != nil else { throw fault("a string without end") }
        position += 1
        guard !isRepairing else { return String(decoding: text, as: UTF8.self) }
        guard let string = String(validating: text, as: UTF8.self) else {
            throw JSON.Malformed(position: start, reason: "a string that is not UTF-8")
        }
        return string
    }

    /// Reads an escape sequence behind its backslash, and returns its UTF-8.
    private mutating func readEscape() throws(JSON.Malformed) -> [UInt8] {
        guard let byte = next else { throw fault("a string without end") }
        position += 1
        switch byte {
        case UInt8(ascii: "b"): return [8]
        case UInt8(ascii: "f"): return [12]
        case UInt8(ascii: "n"): return [10]
        case UInt8(ascii: "r"): return [13]
        case UInt8(ascii: "t"): return [9]
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return [byte]
        case UInt8(ascii: "u"):
            var units = [try readUnit()]
            // A character beyond U+FFFF is a pair of two escapes.
            if UTF16.isLeadSurrogate(units[0]), bytes[position...].starts(with: "\\u".utf8) {
                position += 2
                units.append(try readUnit())
            }
            guard isRepairing || String(validating: units, as: UTF16.self) != nil else {
                throw fault("half of a surrogate pair")
            }
            return Array(String(decoding: units, as: UTF16.self).utf8)
        default:
            position -= 1
            throw fault("an unknown escape sequence")
        }
    }

    /// Reads the four hexadecimal digits of a `\u` escape.
    private mutating func readUnit() throws(JSON.Malformed) -> UInt16 {
        var unit: UInt16 = 0
        for _ in 0..<4 {
            guard let digit = next.flatMap({ Character(Unicode.Scalar($0)).hexDigitValue }) else {
                throw fault("no hexadecimal digit")
            }
            unit = unit << 4 | UInt16(digit)
            position += 1
        }
        return unit
    }

    /// Checks a number by the grammar of the RFC, and returns its text.
    private mutating func readNumber() throws(JSON.Malformed) -> String {
        let start = position
        if next == UInt8(ascii: "-") { position += 1 }
        let leading = next
        let integerDigits = skipDigits()
        guard integerDigits > 0 else { throw fault("no digit") }
        guard leading != UInt8(ascii: "0") || integerDigits == 1 else { throw fault("a number that begins with 0") }
        if next == UInt8(ascii: ".") {
            position += 1
            guard skipDigits() > 0 else { throw fault("no digit behind the point") }
        }
        if next == UInt8(ascii: "e") || next == UInt8(ascii: "E") {
            position += 1
            if next == UInt8(ascii: "+") || next == UInt8(ascii: "-") { position += 1 }
            guard skipDigits() > 0 else { throw fault("no digit in the exponent") }
        }
        return String(decoding: bytes[start..<position], as: UTF8.self)
    }

    /// Skips digits, and returns their number.
    private mutating func skipDigits() -> Int {
        let start = position
        while let byte = next, UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte { position += 1 }
        return position - start
    }

    /// Reads one of the literals `true`, `false` and `null`.
    private mutating func readLiteral(_ word: StaticString, _ value: JSON) throws(JSON.Malformed) -> JSON {
        guard bytes[position...].starts(with: word.description.utf8) else { throw fault("no value") }
        position += word.utf8CodeUnitCount
        return value
    }

    /// The next byte; nil at the end of the text.
    private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

    private mutating func skipSpace() {
        while let byte = next, byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D { position += 1 }
    }

    /// Skips white space, and `character` if it comes next. Returns whether it came next.
    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        skipSpace()
        guard next == UInt8(ascii: character) else { return false }
        position += 1
        return true
    }

    private func fault(_ reason: String) -> JSON.Malformed {
        JSON.Malformed(position: position, reason: reason)
    }
}
