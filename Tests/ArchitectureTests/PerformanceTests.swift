// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// docs/performance.md shows what was measured, and how.
@Suite("docs/performance.md", .limited)
struct PerformanceTests {
    @Test(
        "Documented tools/bench commands use only existing options and questions",
        arguments: ["docs/performance.md", "Benchmarks/README.md"])
    func commands(path: String) throws {
        let text = try Document(path).text
        let help = try help()
        let known = Set(help.matches(of: /--[a-z]+/).map { String($0.0) })
        // To the end of the backticks, of the line of a block, or to its comment.
        let commands = text.matches(of: /tools\/bench((?:\s+[\w-]+)*)/).map { String($0.1) }
        try #require(!commands.isEmpty)
        var isAnyUsed = false
        for command in commands {
            let words = command.split(whereSeparator: \.isWhitespace).map(String.init)
            for option in words where option.hasPrefix("--") {
                isAnyUsed = true
                #expect(known.contains(option), "\(path): tools/bench\(command)")
            }
            guard let only = words.firstIndex(of: "--only") else { continue }
            let questions = words[(only + 1)...].prefix { !$0.hasPrefix("--") }
            #expect(!questions.isEmpty, "\(path): tools/bench\(command)")
            for question in questions { #expect(help.contains(question), "\(path): tools/bench\(command)") }
        }
        #expect(isAnyUsed)
    }

    @Test("The tables and plots match docs/performance/figures.json, and the text mentions each missed aim")
    func figures() throws {
        let result = try Command.run("\(Executables.packageRoot)/tools/bench", ["--check"], environment: environment)
        #expect(result.exitCode == 0, "\(result)")
    }

    @Test("tools/bench --check detects a table that was edited by hand")
    func changed() throws {
        let copy = try TemporaryDirectory()
        for folder in ["Benchmarks/compare", "docs/performance", "tools"] {
            let path = copy.entry(folder)
            try FileManager.default.createDirectory(
                atPath: (path as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
            try FileManager.default.copyItem(atPath: "\(Executables.packageRoot)/\(folder)", toPath: path)
        }
        let text = try Document("docs/performance.md").text
        let tampered = text.replacingOccurrences(of: "| raw broadcast, dbus-daemon |", with: "| raw broadcast, Dbus |")
        try #require(text != tampered)
        try copy.write(tampered, to: "docs/performance.md")
        let result = try Command.run(copy.entry("tools/bench"), ["--check"], environment: environment)
        #expect(result.exitCode == 1)
        #expect(result.standardError.contains("docs/performance.md"))
    }

    @Test("The page shows every plot in docs/performance")
    func plots() throws {
        let text = try Document("docs/performance.md").text
        let files = try FileManager.default.contentsOfDirectory(
            atPath: "\(Executables.packageRoot)/docs/performance")
        for name in files where name.hasSuffix(".svg") { #expect(text.contains("(performance/\(name))"), "\(name)") }
    }

    private let environment = ["PATH": ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"]

    private func help() throws -> String {
        try Command.run("\(Executables.packageRoot)/tools/bench", ["--help"], environment: environment).standardOutput
    }
}
