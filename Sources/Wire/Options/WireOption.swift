// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// One option of a method call, an entry of an `a{sv}`: its key, and a reader of its value. The types of options decode
/// their values with it.
///
/// Each function reads the value as one type, and throws an error that names the option for another type.
struct WireOption {
    let key: String
    /// A reader inside the variant.
    var value: MessageReader

    /// The error for an option that the method does not have.
    var unknown: CenterError { Self.unknown(key) }

    func boolean() throws(CenterError) -> Bool {
        var value = value
        guard let boolean = try? value.read(Bool.self) else { throw wrongType("a boolean (b)") }
        return boolean
    }

    /// Reads a number from an integer of any type.
    func number<Number: FixedWidthInteger>() throws(CenterError) -> Number {
        var value = value
        let integer: Int128? =
            switch value.nextSignature {
            case "y": (try? value.read(UInt8.self)).map { Int128($0) }
            case "n": (try? value.read(Int16.self)).map { Int128($0) }
            case "q": (try? value.read(UInt16.self)).map { Int128($0) }
            case "i": (try? value.read(Int32.self)).map { Int128($0) }
            case "u": (try? value.read(UInt32.self)).map { Int128($0) }
            case "x": (try? value.read(Int64.self)).map { Int128($0) }
            case "t": (try? value.read(UInt64.self)).map { Int128($0) }
            default: nil
            }
        guard let integer else { throw wrongType("an integer") }
        return try Self.number(integer, of: key)
    }

    func text() throws(CenterError) -> String {
        var value = value
        guard let text = try? value.readString() else { throw wrongType("a string (s)") }
        return text
    }

    /// Reads a string that is a raw value of `Choice`.
    func choice<Choice: RawRepresentable<String> & CaseIterable>() throws(CenterError) -> Choice {
        try Self.choice(named: try text(), of: key)
    }

    /// Reads an array of such strings.
    func choices<Choice: RawRepresentable<String> & CaseIterable>() throws(CenterError) -> [Choice] {
        var value = value
        guard value.nextSignature == "as", var elements = try? value.readContainer(.array) else {
            throw wrongType("an array of strings (as)")
        }
        var choices: [Choice] = []
        while let text = try? elements.readString() { choices.append(try Self.choice(named: text, of: key)) }
        return choices
    }

    private func wrongType(_ expected: String) -> CenterError {
        var value = value
        return Self.wrongType(of: key, expected: expected, found: value.nextSignature.rawValue)
    }

    // MARK: Rules that MarshalledOption shares

    static func unknown(_ key: String) -> CenterError { .invalidOption(key, reason: "there is no such option") }

    static func choice<Choice: RawRepresentable<String> & CaseIterable>(
        named text: String, of key: String
    ) throws(CenterError) -> Choice {
        guard let choice = Choice(rawValue: text) else {
            let known = Choice.allCases.map(\.rawValue).joined(separator: ", ")
            throw .invalidOption(key, reason: "'\(text.prefix(64))' is none of: \(known)")
        }
        return choice
    }

    static func number<Number: FixedWidthInteger>(_ integer: Int128, of key: String) throws(CenterError) -> Number {
        guard let number = Number(exactly: integer) else {
            throw .invalidOption(key, reason: "\(integer) is not a number from \(Number.min) to \(Number.max)")
        }
        return number
    }

    static func wrongType(of key: String, expected: String, found: String) -> CenterError {
        .invalidOption(key, reason: "expected \(expected), got type '\(found)'")
    }
}

/// Calls `body` with each entry of the next `a{sv}`. The type of the argument was checked with the method's signature.
func readOptions(
    _ reader: inout MessageReader, _ body: (WireOption) throws(CenterError) -> Void
) throws(CenterError) {
    var entries = reader.nextContents()
    reader.skip()
    while !entries.isAtEnd {
        var entry = entries.nextContents()
        entries.skip()
        guard let key = try? entry.readString() else { preconditionFailure("checked by the signature") }
        try body(WireOption(key: key, value: entry.nextContents()))
    }
}
