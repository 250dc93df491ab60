// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// What documents say of the tree is so.
@Suite("Documents and the source tree", .limited)
struct DocumentTests {
    @Test("Links between documents lead to files that exist")
    func links() throws {
        for document in try Document.forPeople() {
            let folder = document.path.split(separator: "/").dropLast().joined(separator: "/")
            for link in document.text.matches(of: /\]\(([^)#:\s]+)(?:#[^)]*)?\)/) {
                #expect(exists("\(folder)/\(link.1)"), "\(document): \(link.1)")
            }
        }
    }

    @Test("docs/architecture.md lists every folder of Sources with its imports")
    func folders() throws {
        let document = try Document("docs/architecture.md")
        var documented: [String: Set<String>] = [:]
        for row in document.rows(under: ["folder", "holds", "imports"]) {
            for name in quoted(in: row[0]) {
                #expect(exists(name), "\(name)")
                guard name.hasPrefix("Sources/") else { continue }
                let module = SourceFile.module(of: String(name.dropFirst("Sources/".count)))
                let before = Set(documented.keys)
                documented[module] = Set(quoted(in: row[2])).union(row[2].contains("Foundation") ? ["Foundation"] : [])
                #expect(before.isSuperset(of: quoted(in: row[2])), "\(name) stands before what it imports")
            }
        }
        for folder in SourceFile.folders {
            let module = SourceFile.module(of: folder)
            #expect(documented[module] != nil, "docs/architecture.md has no row for Sources/\(folder)")
        }
        let known = Set(SourceFile.folders.map(SourceFile.module)).union(["Foundation"])
        for (module, imported) in documented {
            let files = SourceFile.all.filter { $0.module == module }
            let actual = Set(files.flatMap { imports(in: $0.code) }).intersection(known)
            #expect(
                imported == actual,
                "the row of \(module) lacks \(actual.subtracting(imported).sorted()), and has \(imported.subtracting(actual).sorted()) too much"
            )
        }
    }

    @Test(
        "Files named in the documents exist",
        arguments: ["docs/architecture.md", "docs/glossary.md", "CONTRIBUTING.md", "README.md"])
    func files(document: String) throws {
        let files = ["Sources", "Tests"].flatMap { folder in
            FileManager.default.subpaths(atPath: "\(Executables.packageRoot)/\(folder)") ?? []
        }
        for name in quoted(in: try Document(document).withoutBlocks) {
            guard name.wholeMatch(of: /[\w.+\/-]+(?:\.(?:swift|py|xml|conf|md|txt)|\/\w+)/) != nil else { continue }
            #expect(
                exists(name) || files.contains { "/\($0)".hasSuffix("/\(name)") } || name.hasPrefix("."),
                "\(document): \(name)")
        }
    }
}
