// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Testing

@Suite("Spelling suggestions", .limited)
struct SpellingTests {
    private static let words = ["post", "observe", "observers", "monitor", "status", "top"]

    @Test(
        "The suggestion for a misspelled word is the closest word, or none if no word is close",
        arguments: [
            ("pots", "post"), ("Post", "post"), ("obsrve", "observe"), ("oberservers", "observers"), ("stat", "status"),
            ("moniter", "monitor"), ("tip", "top"), ("to", "top"), ("ring", nil), ("", nil), ("statistics", nil),
            ("observation", nil), ("x", nil), ("posting", nil),
        ] as [(String, String?)])
    func closest(word: String, expected: String?) {
        #expect(Spelling.closest(to: word, among: Self.words) == expected)
    }

    @Test("An exact match or an empty list gives no suggestion")
    func edges() {
        #expect(Spelling.closest(to: "post", among: ["post"]) == nil)
        #expect(Spelling.closest(to: "post", among: []) == nil)
    }
}
