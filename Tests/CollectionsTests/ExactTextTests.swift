// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonTestLimits
import Testing

@Suite("Comparison of texts byte by byte", .limited)
struct ExactTextTests {
    @Test("Canonically equivalent texts are different")
    func equivalents() {
        let (one, other) = ("caf\u{E9}", "cafe\u{301}")
        #expect(one == other)
        #expect(ExactText(one) != ExactText(other))
        #expect(Set([one, other].map(ExactText.init)).count == 2)
    }

    @Test("Texts with equal bytes are equal and have equal hashes, in any storage")
    func same() {
        let text = "a text that is too long for the small form"
        let slice = String(("x" + text).dropFirst())
        #expect(ExactText(text) == ExactText(slice))
        #expect(ExactText(text).hashValue == ExactText(slice).hashValue)
        #expect(ExactText("") == ExactText(""))
        #expect(ExactText("a") != ExactText("ab"))
        #expect(ExactText(text).text == text)
    }

    @Test("Texts are ordered by their bytes")
    func order() {
        let texts = ["", "a", "aaaaaaaa", "aaaaaaaab", "aaaaaaab", "ab", "b", "e\u{301}", "\u{E9}", "\u{1F600}"]
        let bytes = { (text: String) in Array(text.utf8) }
        for one in texts {
            for other in texts {
                #expect(
                    (ExactText(one) < ExactText(other)) == bytes(one).lexicographicallyPrecedes(bytes(other)),
                    "\(one) and \(other)")
            }
        }
    }

    @Test("A difference in any single byte makes two texts unequal", arguments: [1, 7, 8, 9, 15, 16, 17, 100])
    func oneByte(count: Int) {
        let text = String(repeating: "a", count: count)
        for position in 0..<count {
            var bytes = Array(text.utf8)
            bytes[position] = UInt8(ascii: "b")
            #expect(ExactText(text) != ExactText(String(decoding: bytes, as: UTF8.self)))
        }
        #expect(ExactText(text) == ExactText(String(decoding: Array(text.utf8), as: UTF8.self)))
        #expect(ExactText(text) != ExactText(text + "a"))
    }
}
