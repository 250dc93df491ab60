// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonTestLimits
import Foundation
import Testing

@Suite("JSON", .limited)
struct JSONTests {
    @Test(
        "JSON values of every type are parsed",
        arguments: [
            ("null", .null), (" true ", .boolean(true)), ("false", .boolean(false)), ("-12.5e1", .number("-12.5e1")),
            ("1", .number("1")), ("1.0", .number("1.0")), ("-0", .number("-0")), ("0.5E-3", .number("0.5E-3")),
            (#""a\n\"\\\/\u00e9\ud83d\udd14é\u0000""#, .string("a\n\"\\/é🔔é\0")), ("[]", .array([])),
            ("{}", .object([:])),
            ("[1, [2], {\"a\" : 3}]", .array([.number("1"), .array([.number("2")]), .object(["a": .number("3")])])),
        ] as [(String, JSON)])
    func values(text: String, value: JSON) throws {
        #expect(try JSON(text) == value)
    }

    @Test(
        "Malformed JSON is refused with its position",
        arguments: [
            ("", 0), (" ", 1), ("tru", 0), ("nul", 0), ("[1", 2), ("[1,]", 3), ("{\"a\"}", 4), ("{\"a\":}", 5),
            ("{a:1}", 1), ("\"", 1), ("\"\\", 2), ("\"\\u12\"", 5), ("\"\\x\"", 2), ("1 2", 2), ("-", 1), ("]", 0),
            ("{\"a\":1,}", 7), ("01", 2), ("1.", 2), (".5", 0), ("+1", 0), ("1e", 2), ("0x10", 1), ("NaN", 0),
            ("'a'", 0), ("/* */1", 0), ("\"a\nb\"", 2), ("\"\\ud800\"", 7), ("{\"a\":1,\"\\u0061\":2}", 7),
        ])
    func malformed(text: String, position: Int) {
        let error = #expect(throws: JSON.Malformed.self) { try JSON(text) }
        #expect(error?.position == position, "\(text): \(error.map { "\($0)" } ?? "")")
    }

    @Test("Text that is not UTF-8 is refused")
    func encoding() {
        for bytes: [UInt8] in [[0x22, 0xFF, 0x22], [0x22, 0xC3, 0x22], [0xFE, 0xFF, 0x00, 0x31]] {
            #expect(throws: JSON.Malformed.self) { try JSON(bytes) }
        }
    }

    @Test("Repairing mode accepts duplicate keys and replaces invalid text, but refuses incomplete JSON")
    func repairing() throws {
        let bytes: [UInt8] = Array(#"{"a":1,"a":""#.utf8) + [0xFF] + Array(#"\ud800"}"#.utf8)
        #expect(throws: JSON.Malformed.self) { try JSON(bytes) }
        #expect(try JSON(bytes, repairing: true)["a"] == .string("\u{FFFD}\u{FFFD}"))
        #expect(throws: JSON.Malformed.self) { try JSON("[".utf8, repairing: true) }
    }

    @Test("The depth of nesting is bounded, and a million brackets are refused")
    func depth() throws {
        let depth = JSON.maximumDepth - 1
        _ = try JSON(String(repeating: "[", count: depth) + "1" + String(repeating: "]", count: depth))
        #expect(throws: JSON.Malformed.self) { try JSON(String(repeating: "[", count: 1_000_000)) }
        #expect(throws: JSON.Malformed.self) { try JSON(String(repeating: "{\"a\":", count: 1_000_000)) }
    }

    @Test("Only whole numbers of 64 bits are integers")
    func integers() throws {
        #expect(try JSON("4711").integer == 4711)
        #expect(try JSON("-9223372036854775808").integer == .min)
        for text in ["1.5", "1e3", "\"1\"", "9223372036854775808", "null"] { #expect(try JSON(text).integer == nil) }
    }

    @Test("Access to a missing member, element or text returns no value")
    func looking() throws {
        let value = try JSON(#"{"a": ["x", true]}"#)
        #expect(value["a"]?.elements.first?.text == "x")
        #expect(value["a"]?.elements.last?.isTrue == true)
        #expect(value["b"] == nil && value.text == nil && value.elements.isEmpty && !value.isTrue)
        #expect(value["a"]?["b"] == nil)
    }

    @Test("Quoted text is read back by every JSON reader, and contains no characters that deceive a terminal")
    func quoting() throws {
        for text in ["", "plain", "\"\\/", "\n\t\r\0\u{1B}[31m\u{7F}\u{85}", "\u{202E}txt.exe\u{2066}", "é🔔"] {
            let quoted = JSON.quoted(text)
            #expect(try JSON(quoted) == .string(text))
            let foreign = try JSONSerialization.jsonObject(with: Data(quoted.utf8), options: .fragmentsAllowed)
            #expect(foreign as? String == text)
            #expect(!quoted.unicodeScalars.contains(where: JSON.isDeceptive))
        }
    }

    @Test(
        "The reader accepts the texts that Foundation accepts, except duplicate keys and trailing commas",
        arguments: 1...4)
    func beside(seed: UInt64) {
        var random = SplitMix(state: seed)
        let pieces = [
            "{", "}", "[", "]", ":", ",", "\"", "\"a\"", "\"b\"", "\\u00", "\\", "1", "0", "-", ".5", "e1", "true",
            "null",
            " ", "\n", "é",
        ]
        for _ in 0..<5_000 {
            let text = (0..<Int.random(in: 1...7, using: &random)).map { _ in pieces.randomElement(using: &random)! }
                .joined()
            let data = Data(text.utf8)
            let foreign = try? JSONSerialization.jsonObject(with: data, options: .fragmentsAllowed)
            let ours = Result { try JSON(text) }
            switch ours {
            case .success: #expect(foreign != nil, "only ours takes \(text.debugDescription)")
            case .failure(let error):
                let text = text.filter { !$0.isWhitespace }
                let isStricter = "\(error)".contains("given twice") || text.contains(",]") || text.contains(",}")
                #expect(foreign == nil || isStricter, "only Foundation takes \(text.debugDescription): \(error)")
            }
        }
    }
}
