// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Testing

@Suite("The word that was meant", .limited)
struct SpellingTests {
    private static let words = ["post", "observe", "observers", "monitor", "status", "top"]

    @Test(
        "It is the closest one, unless none is close",
        arguments: [
            ("pots", "post"), ("Post", "post"), ("obsrve", "observe"), ("oberservers", "observers"), ("stat", "status"),
            ("moniter", "monitor"), ("tip", "top"), ("to", "top"), ("ring", nil), ("", nil), ("statistics", nil),
            ("observation", nil), ("x", nil), ("posting", nil),
        ] as [(String, String?)])
    func closest(word: String, expected: String?) {
        #expect(Spelling.closest(to: word, among: Self.words) == expected)
    }

    @Test("A word of the list is not meant by itself, and nothing is meant without a list")
    func edges() {
        #expect(Spelling.closest(to: "post", among: ["post"]) == nil)
        #expect(Spelling.closest(to: "post", among: []) == nil)
    }
}
