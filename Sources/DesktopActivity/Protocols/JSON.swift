/// A value of JSON, as far as the desktop's IPC needs it.
///
/// Foundation has a reader, but the service does without Foundation. This one has bounds: what it is given comes from
/// another process.
indirect enum JSON: Equatable {
    case null
    case boolean(Bool)
    case number(Double)
    case string(String)
    case array([JSON])
    case object([String: JSON])

    /// Collections inside each other; a tree of windows has a few of them for each level.
    static let maximumDepth = 256

    /// Nil when `bytes` are no JSON, or nest deeper than ``maximumDepth``.
    init?(_ bytes: some Collection<UInt8>) {
        var reader = JSONReader(bytes: Array(bytes))
        guard let value = try? reader.readDocument() else { return nil }
        self = value
    }

    /// The member of an object; nil for other values and where it is missing.
    subscript(key: String) -> JSON? {
        if case .object(let members) = self { members[key] } else { nil }
    }

    var text: String? { if case .string(let text) = self { text } else { nil } }
    var elements: [JSON] { if case .array(let elements) = self { elements } else { [] } }
    var isTrue: Bool { self == .boolean(true) }
    /// Nil for what is no whole number that a double holds exactly.
    var integer: Int64? {
        guard case .number(let number) = self, abs(number) <= 9_007_199_254_740_992 else { return nil }
        return Int64(exactly: number)
    }
}

private struct JSONReader {
    struct Malformed: Error {}

    let bytes: [UInt8]
    var position = 0

    init(bytes: [UInt8]) {
        self.bytes = bytes
    }

    mutating func readDocument() throws(Malformed) -> JSON {
        let value = try readValue(depth: 0)
        skipSpace()
        guard position == bytes.count else { throw Malformed() }
        return value
    }

    private mutating func readValue(depth: Int) throws(Malformed) -> JSON {
        guard depth < JSON.maximumDepth else { throw Malformed() }
        skipSpace()
        switch next {
        case UInt8(ascii: "{"): return .object(try readObject(depth: depth))
        case UInt8(ascii: "["): return .array(try readArray(depth: depth))
        case UInt8(ascii: "\""): return .string(try readString())
        case UInt8(ascii: "t"): return try readWord("true", .boolean(true))
        case UInt8(ascii: "f"): return try readWord("false", .boolean(false))
        case UInt8(ascii: "n"): return try readWord("null", .null)
        default: return .number(try readNumber())
        }
    }

    private mutating func readObject(depth: Int) throws(Malformed) -> [String: JSON] {
        var members: [String: JSON] = [:]
        position += 1
        guard !take("}") else { return members }
        repeat {
            skipSpace()
            let key = try readString()
            guard take(":") else { throw Malformed() }
            members[key] = try readValue(depth: depth + 1)
        } while take(",")
        guard take("}") else { throw Malformed() }
        return members
    }

    private mutating func readArray(depth: Int) throws(Malformed) -> [JSON] {
        var elements: [JSON] = []
        position += 1
        guard !take("]") else { return elements }
        repeat { elements.append(try readValue(depth: depth + 1)) } while take(",")
        guard take("]") else { throw Malformed() }
        return elements
    }

    private mutating func readString() throws(Malformed) -> String {
        guard next == UInt8(ascii: "\"") else { throw Malformed() }
        position += 1
        var text: [UInt8] = []
        while let byte = next, byte != UInt8(ascii: "\"") {
            position += 1
            if byte == UInt8(ascii: "\\") {
                text += try readEscape()
            } else {
                text.append(byte)
            }
        }
        guard next != nil else { throw Malformed() }
        position += 1
        return String(decoding: text, as: UTF8.self)
    }

    private mutating func readEscape() throws(Malformed) -> [UInt8] {
        guard let byte = next else { throw Malformed() }
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
            if 0xD800..<0xDC00 ~= units[0], bytes[position...].starts(with: "\\u".utf8) {
                position += 2
                units.append(try readUnit())
            }
            return Array(String(decoding: units, as: UTF16.self).utf8)
        default: throw Malformed()
        }
    }

    private mutating func readUnit() throws(Malformed) -> UInt16 {
        let digits = bytes[position...].prefix(4)
        guard digits.count == 4, let unit = UInt16(String(decoding: digits, as: UTF8.self), radix: 16) else {
            throw Malformed()
        }
        position += 4
        return unit
    }

    private mutating func readNumber() throws(Malformed) -> Double {
        let start = position
        while let byte = next, "+-.0123456789eE".utf8.contains(byte) { position += 1 }
        guard let number = Double(String(decoding: bytes[start..<position], as: UTF8.self)), number.isFinite else {
            throw Malformed()
        }
        return number
    }

    private mutating func readWord(_ word: StaticString, _ value: JSON) throws(Malformed) -> JSON {
        guard bytes[position...].starts(with: word.description.utf8) else { throw Malformed() }
        position += word.utf8CodeUnitCount
        return value
    }

    private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

    private mutating func skipSpace() {
        while let byte = next, [0x20, 0x09, 0x0A, 0x0D].contains(byte) { position += 1 }
    }

    /// Passes over `character` if it comes next, after space.
    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        skipSpace()
        guard next == UInt8(ascii: character) else { return false }
        position += 1
        return true
    }
}
