// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

/// Who finds D5 somewhere can look it up.
@Suite("The numbered rules", .limited)
struct RuleBookTests {
    @Test("Every rule occurs once in docs/semantics.md, in order, with a reason unless it is to come")
    func rules() throws {
        let book = try RuleBook()
        #expect(book.rules.count > 50)
        #expect(Set(book.rules + book.toCome).count == book.rules.count + book.toCome.count)
        var numbers: [Character: [Int]] = [:]
        for rule in book.rules + book.toCome { numbers[rule.first!, default: []].append(Int(rule.dropFirst())!) }
        for (part, numbers) in numbers {
            #expect(numbers.sorted() == Array(1...numbers.count), "part \(part)")
        }
        let paragraphs = try Document("docs/semantics.md").text.split(separator: "\n**").dropFirst()
        #expect(paragraphs.count == book.rules.count + book.toCome.count)
        for paragraph in paragraphs {
            #expect(paragraph.contains("\n*Why:* ") || paragraph.contains("*To come.*"), "\(paragraph.prefix(8))")
        }
    }

    @Test("Comments in the sources cite only existing rules", arguments: SourceFile.all)
    func sources(file: SourceFile) throws {
        try check(file.comments, of: "\(file)")
    }

    @Test("Titles and comments of tests cite only existing rules")
    func tests() throws {
        for file in try Document.all(in: "Tests", suffix: ".swift") {
            for line in file.lines {
                if let comment = line.firstRange(of: "//") { try check(line[comment.upperBound...], of: file.path) }
                // As in "D2, D8: registrations".
                for name in line.matches(of: /"([A-Z][0-9]+[^":]*):\ /) { try check(name.1, of: file.path) }
            }
        }
    }

    @Test("Documents, manual pages and interface files cite only existing rules")
    func documents() throws {
        for document in try Document.forPeople() { try check(document.prose, of: document.path) }
        let others =
            try Document.all(in: "data", suffix: "") + Document.all(in: "dbus-interfaces", suffix: ".xml")
            + Document.all(in: "tools", suffix: "") + Document.all(in: "Tests/Interop", suffix: ".py")
        for document in others { try check(document.text, of: document.path) }
    }

    private func check(_ text: some StringProtocol, of file: String) throws {
        for rule in RuleBook.cited(in: text) where !Self.known.contains(rule) {
            let line = text.split(separator: "\n").first { RuleBook.cited(in: $0).contains(rule) } ?? ""
            Issue.record("\(file) cites \(rule), which docs/semantics.md does not have: \(line)")
        }
    }

    private static let known: Set<String> = {
        let book = try? RuleBook()
        return Set((book?.rules ?? []) + (book?.toCome ?? []))
    }()

    @Test(
        "The reader of citations finds every cited rule and ignores similar text",
        arguments: [
            ("(D5)", ["D5"]), ("C1, C3 and C11", ["C1", "C3", "C11"]),
            ("D3 to D6, S1", ["D3", "D4", "D5", "D6", "S1"]),
            ("A1–A3", ["A1", "A2", "A3"]), ("M4, M5. Where", ["M4", "M5"]), ("(SPEC E3)", ["E3"]),
            ("X11, UTF8, 3D2, A, 4 to A", []), ("D0", []), ("A4_b, XA4", []),
        ])
    func citations(text: String, rules: [String]) {
        #expect(RuleBook.cited(in: text) == rules)
    }
}
