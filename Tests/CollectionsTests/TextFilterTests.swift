// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCollections

@Suite("Counting filter of texts", .limited)
struct TextFilterTests {
    private func mayContain(_ filter: TextFilter, _ text: String) -> Bool {
        Array(text.utf8).withUnsafeBytes { filter.mayContain($0) }
    }

    @Test("A text passes the filter until it has been removed as often as inserted")
    func counts() {
        var filter = TextFilter()
        #expect(!mayContain(filter, ""))
        let texts = ["", "a", "12345678", "123456789", "org.example.Name", String(repeating: "ä", count: 500)]
        for text in texts + texts { filter.insert(text) }
        for text in texts { filter.remove(text) }
        #expect(texts.allSatisfy { mayContain(filter, $0) })
        for text in texts { filter.remove(text) }
        #expect(!texts.contains { mayContain(filter, $0) })
    }

    @Test("Fewer than 4 % of the texts outside the filter pass, even texts that differ in a few bytes")
    func fewPass() {
        var filter = TextFilter()
        for number in 0..<1000 { filter.insert("org.example.Name.\(number)") }
        let passing = (1000..<11_000).count { mayContain(filter, "org.example.Name.\($0)") }
        #expect(passing < 400, "a thousand of 65,536 slots are taken: 150 are to be expected")
    }

    @Test("A slot whose counter is full remains set after all removals")
    func full() {
        var filter = TextFilter()
        for _ in 0..<70_000 { filter.insert("a") }
        for _ in 0..<70_000 { filter.remove("a") }
        #expect(mayContain(filter, "a"))
    }
}
