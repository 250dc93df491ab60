// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

/// `docs/rules.md` says which test fails when a rule is broken. Here is what fails when it does not.
@Suite("The table of rules and their tests", .limited)
struct RuleTableTests {
    private let document: Document
    private let index: TestIndex
    /// The folders of `Tests/` by their names in the second column.
    private let folders: [String: String]

    init() throws {
        document = try Document("docs/rules.md")
        index = try TestIndex.shared.get()
        folders = Dictionary(
            document.lines.compactMap { line in
                line.prefixMatch(of: /\* \*\*(\w+)\*\*: `(\w+)`/).map { (String($0.1), String($0.2)) }
            }, uniquingKeysWith: { first, _ in first })
    }

    private var rows: [[String]] { document.rows(under: ["rule", "where", "tests"]) }

    @Test("The list of test targets in docs/rules.md matches the folders of Tests")
    func targets() {
        for (name, folder) in folders { #expect(exists("Tests/\(folder)"), "\(name): there is no Tests/\(folder)") }
        let list = document.text.prefix(upTo: document.text.firstRange(of: "\n## ")!.lowerBound)
        for folder in index.folders.keys {
            #expect(
                list.contains("`\(folder)`"),
                "docs/rules.md has no name for Tests/\(folder): add one to the list at its beginning")
        }
    }

    @Test("Every test in the table exists")
    func tests() {
        #expect(rows.count > 100)
        for row in rows {
            guard row.count == 3 else {
                Issue.record("a row of \(row.count) cells: \(row)")
                continue
            }
            let places = row[1].split(separator: ",").map { String($0.trimmingPrefix(" ")) }
            for place in places where folders[place] == nil {
                Issue.record("'\(place)' in the second column of \(row) is not in the list at the beginning")
            }
            for name in missing(row[2], in: places.compactMap { folders[$0] }) {
                Issue.record("there is no \(name) in \(row[1]): \(row[0])\(elsewhere(name))")
            }
        }
    }

    @Test("Every rule in force has a row or is listed as not covered")
    func rules() throws {
        var named = Set(rows.flatMap { RuleBook.cited(in: $0.first ?? "") })
        for paragraph in document.text.split(separator: "\n\n") where paragraph.hasPrefix("Not covered: ") {
            named.formUnion(RuleBook.cited(in: paragraph))
        }
        for rule in try RuleBook().rules {
            #expect(named.contains(rule), "docs/rules.md has neither a row for \(rule) nor says that it is not covered")
        }
    }

    /// The pages of differences, with the folders of the tests that hold them.
    static let pages = [
        ("Carillon", ["CarillonTests", "DesktopActivityTests", "Interop"]),
        ("LocalNotifications", ["LocalNotificationsTests"]),
    ]

    @Test("Every row of a page of differences from Foundation names existing tests", arguments: pages)
    func differences(module: String, folders: [String]) throws {
        let page = try Document("Sources/\(module)/\(module).docc/DifferencesFromFoundation.md")
        let lines = page.lines.filter { $0.hasPrefix("|") && !$0.hasPrefix("|-") }
        let headings = lines.filter { $0.contains("tested by") }
        #expect(!headings.isEmpty && lines.count >= 10)
        let columns = headings.first?.split(separator: "|", omittingEmptySubsequences: false).count
        for line in lines where !headings.contains(line) {
            let cells = line.split(separator: "|", omittingEmptySubsequences: false)
            #expect(cells.count == columns, "\(line)")
            let tests = cells.dropFirst(4).joined(separator: " ")
            #expect(!quoted(in: tests).isEmpty, "\(module): no test holds \(line)")
            for name in missing(tests, in: folders) {
                Issue.record("\(module): there is no \(name)\(elsewhere(name)): \(line)")
            }
        }
    }

    @Test("The page of differences names exactly the tests that compare with Foundation")
    func measured() throws {
        let page = try Document("Sources/LocalNotifications/LocalNotifications.docc/DifferencesFromFoundation.md")
        let named = Set(quoted(in: page.text).filter { $0.hasPrefix("BesideFoundation.") })
        let tests = index.folders["LocalNotificationsTests"]?["BesideFoundation"] ?? []
        #expect(!tests.isEmpty && named == Set(tests.map { "BesideFoundation.\($0)" }))
    }

    /// What a cell names and none of the folders has.
    private func missing(_ cell: String, in folders: [String]) -> [String] {
        let suites = folders.map { index.folders[$0] ?? [:] }
        var missing: [String] = []
        var last = ""
        // What is in parentheses is a case of a test.
        for name in quoted(in: cell.replacing(/\(`[^)]*\)/, with: "")) {
            if name.contains("/") {
                if !exists(name) { missing.append(name) }
                continue
            }
            let parts = name.split(separator: ".", omittingEmptySubsequences: false)
            let isSuite = parts.count == (name.hasPrefix("test_") ? 2 : 1)
            let suite =
                isSuite ? name : parts.count == 2 && parts[0].isEmpty ? last : parts.dropLast().joined(separator: ".")
            last = suite
            let isThere = suites.contains { suites in
                isSuite
                    ? suites[suite] != nil && cell.contains("all tests")
                    : suites[suite]?.contains(String(parts.last!)) ?? false
            }
            if !isThere { missing.append(name) }
        }
        return missing
    }

    /// Where a suite or test of that name is instead.
    private func elsewhere(_ name: String) -> String {
        let parts = name.split(separator: ".").map(String.init)
        let places = index.folders.flatMap { folder, suites in
            suites.filter { $0.key == parts.first || $0.value.contains(parts.last ?? "") }
                .map { "\(folder)/\($0.key)Tests" }
        }
        return places.isEmpty || places.count > 5 ? "" : "; but see \(places.sorted().joined(separator: ", "))"
    }
}
