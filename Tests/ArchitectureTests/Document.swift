// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport
import Foundation

/// A text of the repository that people read.
struct Document: Sendable, CustomStringConvertible {
    /// From the root of the repository.
    let path: String
    let text: String

    var description: String { path }

    /// - Throws: when there is no such file.
    init(_ path: String) throws {
        self.path = path
        text = try String(contentsOfFile: "\(Executables.packageRoot)/\(path)", encoding: .utf8)
    }

    var lines: [Substring] { text.split(separator: "\n", omittingEmptySubsequences: false) }

    /// Without blocks of code.
    var withoutBlocks: String {
        var isFenced = false
        let rest = lines.filter { line in
            if line.hasPrefix("```") { isFenced.toggle() }
            return !isFenced && !line.hasPrefix("```") && !line.hasPrefix("    ")
        }
        return rest.joined(separator: "\n")
    }

    /// Without blocks of code, and what is in backticks.
    var prose: String { withoutBlocks.replacing(/`[^`]*`/, with: "") }

    /// The rows of its tables under the heading with these columns, each with so many cells.
    func rows(under heading: [String]) -> [[String]] {
        var rows: [[String]] = []
        var isInTable = false
        for line in lines {
            guard line.hasPrefix("|") else {
                isInTable = false
                continue
            }
            let cells = line.dropFirst().split(separator: "|", omittingEmptySubsequences: false).dropLast()
                .map { $0.trimmingCharacters(in: .whitespaces) }
            if cells == heading {
                isInTable = true
            } else if isInTable, !line.hasPrefix("|-") {
                rows.append(cells)
            }
        }
        return rows
    }

    /// All files of a folder and those below it whose names end so.
    static func all(in folder: String, suffix: String) throws -> [Document] {
        let root = "\(Executables.packageRoot)/\(folder)"
        let names = FileManager.default.subpaths(atPath: root) ?? []
        return try names.sorted().filter { name in
            var isDirectory: ObjCBool = false
            return name.hasSuffix(suffix)
                && FileManager.default.fileExists(atPath: "\(root)/\(name)", isDirectory: &isDirectory)
                && !isDirectory.boolValue
        }.map { try Document("\(folder)/\($0)") }
    }

    /// What stands in the root, and in folders of documents.
    static func forPeople() throws -> [Document] {
        let files = try FileManager.default.contentsOfDirectory(atPath: Executables.packageRoot)
        let ofTheRoot = try files.sorted().filter { $0.hasSuffix(".md") }.map(Document.init)
        let folders = ["docs", "Sources", "Tests", "Benchmarks", "Examples"]
        return try ofTheRoot + folders.flatMap { try all(in: $0, suffix: ".md") }
    }
}

/// What is in backticks, in its order.
func quoted(in text: some StringProtocol) -> [String] {
    String(text).matches(of: /`([^`]+)`/).map { String($0.1) }
}

/// Whether a file or folder of the repository is there.
func exists(_ path: String) -> Bool {
    FileManager.default.fileExists(atPath: "\(Executables.packageRoot)/\(path)")
}
