// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// Names as lists in the configuration have them.
@Suite("P2, P3, G1, G2: name patterns in configuration lists", .limited)
struct NamePatternTests {
    @Test(
        "D2, P3: a prefix pattern matches the names below its dot, but not the prefix itself, byte for byte",
        arguments: [
            ("org.example.*", "org.example.Ding", true), ("org.example.*", "org.example.a.b", true),
            ("org.example.*", "org.example..", true), ("org.example.*", "org.example.", false),
            ("org.example.*", "org.example", false), ("org.example.*", "org.exampleDing", false),
            ("org.example.*", "org.examples.Ding", false), ("org.example.*", "org.example-.Ding", false),
            ("org.example.*", "Org.example.Ding", false), ("org.example.*", "x.org.example.Ding", false),
            ("org.example.*", "", false), ("org.e\u{301}.*", "org.\u{E9}.Ding", false),
            ("org.example.*", "org.example.\u{301}", true), ("org.example.*", "org.example\u{301}.Ding", false),
            ("org.example.Ding", "org.example.Ding", true), ("org.example.Ding", "org.example.Ding.a", false),
            ("org.example.Ding", "org.example.Din", false), ("org.example.Ding", "org.example.ding", false),
            ("caf\u{E9}", "cafe\u{301}", false), ("*", "Ding", true), ("*", "", true),
        ])
    func matches(pattern: String, name: String, isMatched: Bool) throws {
        let pattern = try #require(NamePattern(pattern))
        #expect(pattern.matches(name) == isMatched)
        #expect(NamePattern(pattern.description) == pattern)
    }

    @Test(
        "P3: an empty text, or one with a misplaced asterisk, is no valid pattern",
        arguments: ["", ".*", "**", "*.Ding", "org.*.Ding", "org.*.*", "org.example*", "org.example.**"])
    func refused(text: String) { #expect(NamePattern(text) == nil) }

    @Test("The common patterns of two lists match exactly the names that both lists match")
    func common() throws {
        let texts = ["*", "a.*", "a.b.*", "a.b", "a.b.c", "a.", "a", "b.*", "a..*", ".a", "é", "e\u{301}"]
        let names = [
            "a", "a.", "a.b", "a.b.", "a.b.c", "a.b.c.d", "b", "b.c", "a..", "a..x", ".a", "é", "e\u{301}", "x",
        ]
        let patterns = try texts.map { try #require(NamePattern($0)) }
        // All lists of one and of two.
        let lists = patterns.indices.flatMap { first in
            patterns.indices[first...].map { first == $0 ? [patterns[first]] : [patterns[first], patterns[$0]] }
        }
        for one in lists {
            for other in lists {
                let common = NamePattern.common(of: one, and: other)
                for name in names {
                    let isInBoth = one.contains { $0.matches(name) } && other.contains { $0.matches(name) }
                    if common.contains(where: { $0.matches(name) }) != isInBoth {
                        Issue.record("'\(name)' in \(common) of \(one) and \(other)")
                    }
                }
            }
        }
    }
}
