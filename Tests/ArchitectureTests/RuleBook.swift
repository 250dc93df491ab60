// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport
import Foundation

/// The numbered rules of `docs/semantics.md`.
struct RuleBook {
    /// Those that hold, in their order.
    private(set) var rules: [String] = []
    private(set) var toCome: [String] = []

    init() throws {
        for line in try Document("docs/semantics.md").lines {
            guard let match = line.prefixMatch(of: /\*\*([A-Z][0-9]+)\.\*\* (\*To come\.\*)?/) else { continue }
            if match.2 == nil { rules.append(String(match.1)) } else { toCome.append(String(match.1)) }
        }
    }

    /// The rules that a text cites: `D5`, `D3 to D6`, `A1–A3`.
    static func cited(in text: some StringProtocol) -> [String] {
        String(text).matches(of: citation).flatMap { match -> [String] in
            let first = Int(match.2)!
            guard let last = match.4.flatMap({ Int($0) }), last > first, match.3 == match.1 else {
                return ["\(match.1)\(first)"] + (match.3.map { ["\($0)\(match.4!)"] } ?? [])
            }
            return (first...last).map { "\(match.1)\($0)" }
        }
    }

    /// A letter of a part and a number, that nothing goes on from.
    private nonisolated(unsafe) static let citation =  // Sendable in all but its declaration: it is never changed.
        /\b([A-GMNP-T])([1-9][0-9]?)\b(?:(?:\ to\ |–)([A-GMNP-T])([1-9][0-9]?)\b)?/.wordBoundaryKind(.simple)
}

extension SourceFile {
    /// What stands behind the code of each line, and in literals of several lines.
    var comments: String {
        let code = code.split(separator: "\n", omittingEmptySubsequences: false)
        return zip(lines, code).map { line, code in
            String(line.dropFirst(code.reversed().drop { $0 == " " }.count))
        }.joined(separator: "\n")
    }
}

/// The tests that there are, as `docs/rules.md` names them.
struct TestIndex {
    /// The names of the tests by folder of `Tests/` and suite, without the `Tests` at its end.
    private(set) var folders: [String: [String: Set<String>]] = [:]

    static let shared = Result { try TestIndex() }

    private init() throws {
        for folder in try FileManager.default.contentsOfDirectory(atPath: "\(Executables.packageRoot)/Tests") {
            guard folder.hasSuffix("Tests") else { continue }
            folders[folder] = [:]
            for file in try Document.all(in: "Tests/\(folder)", suffix: ".swift") { add(file, to: folder) }
        }
        for file in try Document.all(in: "Tests/Interop", suffix: ".py") { addPython(file) }
    }

    private mutating func add(_ file: Document, to folder: String) {
        var suite: String?
        var isTest = false
        for line in file.lines {
            if line.first?.isLetter == true,
                let match = line.prefixMatch(of: /(?:final )?(?:struct|class|actor|extension) (\w+)Tests\b/)
            {
                suite = String(match.1)
                folders[folder]![suite!, default: []].formUnion([])
            }
            if line.contains("@Test") { isTest = true }
            if isTest, let suite, let match = line.firstMatch(of: /\bfunc `?(\w+)/) {
                folders[folder]![suite]!.insert(String(match.1))
                isTest = false
            }
        }
    }

    private mutating func addPython(_ file: Document) {
        let module = file.path.split(separator: "/").last!.dropLast(3)
        var suite: String?
        for line in file.lines {
            if let match = line.prefixMatch(of: /class (\w+)/) { suite = "\(module).\(match.1)" }
            if let suite, let match = line.prefixMatch(of: /\ {4}def (test_\w+)/) {
                folders["Interop", default: [:]][suite, default: []].insert(String(match.1))
            }
        }
    }
}
