import Testing

@testable import NotificationService

@Suite("JSON of the desktop's IPC", .timeLimit(.minutes(20)))
struct JSONTests {
    @Test(
        "Values",
        arguments: [
            ("null", .null), (" true ", .boolean(true)), ("false", .boolean(false)), ("-12.5e1", .number(-125)),
            (#""a\n\"\\\/\u00e9\ud83d\udd14é""#, .string("a\n\"\\/é🔔é")), ("[]", .array([])), ("{}", .object([:])),
            ("[1, [2], {\"a\" : 3}]", .array([.number(1), .array([.number(2)]), .object(["a": .number(3)])])),
        ] as [(String, JSON)])
    func values(text: String, value: JSON) {
        #expect(JSON(text.utf8) == value)
    }

    @Test(
        "What is no JSON is refused",
        arguments: [
            "", " ", "tru", "nul", "[1", "[1,]", "{\"a\"}", "{\"a\":}", "{a:1}", "\"", "\"\\", "\"\\u12", "\"\\x\"",
            "1 2",
            "1e999", "-", "]", "{\"a\":1,}",
        ])
    func malformed(text: String) {
        #expect(JSON(text.utf8) == nil)
    }

    @Test("Nesting is bounded, so that nobody ends the service with brackets")
    func depth() {
        let depth = JSON.maximumDepth - 1
        #expect(JSON((String(repeating: "[", count: depth) + "1" + String(repeating: "]", count: depth)).utf8) != nil)
        #expect(JSON(String(repeating: "[", count: 1_000_000).utf8) == nil)
    }

    @Test("Integers are whole and exact")
    func integers() {
        #expect(JSON("4711".utf8)?.integer == 4711)
        for text in ["1.5", "1e300", "\"1\"", "9007199254740994"] { #expect(JSON(text.utf8)?.integer == nil) }
    }
}
