// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// Shapes in which public programs for macOS use the class, in `Tests/MacOSSources/CallSites`. The second line of each file says
/// whether it compiles unchanged, with which change, or what it stands for that can't compile; `docs/guides/from-macos.md` has
/// the list.
@Suite("B13: call sites of macOS programs", .limited)
struct CallSiteTests {
    private struct CallSite: CustomStringConvertible {
        let name: String
        let text: String
        /// The replaced text, and its replacement.
        var change: (original: String, replacement: String)?
        /// Code that can't be written on Linux.
        var impossible: String?

        var description: String { name }

        init(_ name: String, _ text: String) throws {
            self.name = name
            self.text = text
            // Behind the licence.
            let lines = Array(text.components(separatedBy: "\n").dropFirst())
            if let change = lines[0].firstMatch(of: /^\/\/ changed: (.+) => (.+)$/) {
                self.change = (String(change.1), String(change.2))
            } else if lines[0] == "// instead of:" {
                let written = lines.dropFirst().prefix { $0.hasPrefix("//     ") }.map { $0.dropFirst(7) }
                impossible = written.joined(separator: "\n")
            } else {
                try #require(lines[0] == "// unchanged", "\(name): \(lines[0])")
            }
        }
    }

    private static let directory = URL(fileURLWithPath: Executables.packageRoot)
        .appendingPathComponent("Tests/MacOSSources/CallSites")

    private static func callSites() throws -> [CallSite] {
        try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted().map { file in
            try CallSite(file, try String(contentsOf: directory.appendingPathComponent(file), encoding: .utf8))
        }
    }

    /// Compiles files together, without linking them.
    private static func compiles(_ files: [String: String], mode: String) throws -> CommandResult {
        let directory = try TemporaryDirectory()
        for (name, text) in files { try text.write(toFile: directory.entry(name), atomically: true, encoding: .utf8) }
        let root = Executables.packageRoot
        let modules = URL(fileURLWithPath: try Executables.path(of: "carillond")).deletingLastPathComponent()
        let flags = try Command.run("pkg-config", ["--cflags-only-I", "dbus-1", "glib-2.0"]).standardOutput
            .split(whereSeparator: \.isWhitespace).map(String.init)
        let includes =
            [modules.appendingPathComponent("Modules").path]
            + ["CDBus", "CGLib", "CMainQueue"].map { "\(root)/Sources/\($0)" }
        var arguments = ["-typecheck", "-swift-version", mode, "-parse-as-library"]
        arguments += includes.flatMap { ["-I", $0] } + flags
        arguments += files.keys.sorted().map { directory.entry($0) }
        return try Command.run("swiftc", arguments)
    }

    @Test("All call sites compile together in the Swift 5 and Swift 6 language modes", arguments: ["5", "6"])
    func compile(mode: String) throws {
        let sites = try Self.callSites()
        #expect(sites.count >= 20 && sites.count { $0.change == nil && $0.impossible == nil } >= 12)
        let result = try Self.compiles(Dictionary(uniqueKeysWithValues: sites.map { ($0.name, $0.text) }), mode: mode)
        #expect(result.exitCode == 0, "\(result)")
    }

    @Test("A call site listed as changed or impossible does not compile in its macOS form")
    func originals() throws {
        for site in try Self.callSites() {
            var original = site.text
            if let change = site.change {
                try #require(site.text.contains(change.replacement), "\(site)")
                original = original.replacingOccurrences(of: change.replacement, with: change.original)
            } else if let impossible = site.impossible {
                original = "import Carillon\nimport Foundation\n\nfunc original() {\n\(impossible)\n}\n"
            } else {
                continue
            }
            let result = try Self.compiles([site.name: original], mode: "5")
            #expect(result.exitCode != 0, "\(site) compiles on Linux as it stands on macOS")
            #expect(result.standardError.contains("error:"), "\(result)")
        }
    }

    /// Declarations that the examples of a page take for granted.
    private static let given: [String: String] = [
        "Carillon/Carillon.docc/Carillon": """
        struct Saved: DistributedMessage {
            static let name = Notification.Name("com.example.Saved")
            var path: String
        }
        let center = DistributedNotificationCenter.default
        @Sendable func upload(_ bytes: Int) async {}
        """,
        "Carillon/Carillon.docc/CommonTasks": "",
        "Carillon/Carillon.docc/Loops": """
        struct Saved: DistributedMessage {
            static let name = Notification.Name("com.example.Saved")
            var path: String
            var bytes: Int
        }
        let center = DistributedNotificationCenter.default
        """,
        "Carillon/Carillon.docc/FromMacOSToLinux": """
        let center = DistributedNotificationCenter.default
        @MainActor func reloadEverything() {}
        """,
        "Carillon/Carillon.docc/DistributedNotificationCenter": """
        struct Player: Codable, Sendable {
            var title: String
            var isPlaying = false
        }
        let center = DistributedNotificationCenter.default
        """,
        "Carillon/Carillon.docc/PropertyListsBetweenProcesses": "",
        "LocalNotifications/LocalNotifications.docc/LocalNotifications": """
        extension Notification.Name { static let documentSaved = Notification.Name("saved") }
        let (document, path) = ("a document", "report.txt")
        """,
        "LocalNotifications/LocalNotifications.docc/PostingStylesAndModes": """
        import CarillonMainLoop
        nonisolated(unsafe) var isDragging = true
        func runDialog() {}
        """,
    ]

    @Test("The examples of each documentation page compile", arguments: given.keys.sorted(), ["5", "6"])
    func examples(page: String, mode: String) throws {
        let text = try String(
            contentsOfFile: "\(Executables.packageRoot)/Sources/\(page).md", encoding: .utf8)
        // A block in a list is indented.
        var blocks = text.components(separatedBy: "```swift\n").dropFirst().map {
            String($0[..<($0.range(of: "```")?.lowerBound ?? $0.endIndex)])
        }
        try #require(!blocks.isEmpty)
        var source = Self.given[page]! + "\n"
        // The first block of this page is what its others use.
        if page.hasSuffix("/CommonTasks") { source += blocks.removeFirst() + "\n" }
        var imports: Set = ["import Carillon", "import Foundation"]
        for (number, block) in blocks.enumerated() {
            let lines = block.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
            func isImport(_ line: String) -> Bool { line.trimmingPrefix(while: \.isWhitespace).hasPrefix("import ") }
            imports.formUnion(lines.filter(isImport))
            let body = lines.filter { !isImport($0) }.joined(separator: "\n")
            // Some of them run a loop, which has no place in an asynchronous function.
            let effects = body.contains("await ") ? "async throws" : "throws"
            source += "\nfunc example\(number)() \(effects) {\n\(body)\n}\n"
        }
        source = imports.sorted().joined(separator: "\n") + "\n" + source
        let result = try Self.compiles(["Examples.swift": source], mode: mode)
        #expect(result.exitCode == 0, "\(result)")
    }

    @Test("The guide from-macos.md names every call site")
    func guide() throws {
        let guide = try String(
            contentsOfFile: "\(Executables.packageRoot)/docs/guides/from-macos.md", encoding: .utf8)
        for site in try Self.callSites() {
            #expect(guide.contains("CallSites/\(site.name)"), "docs/guides/from-macos.md does not name \(site)")
        }
    }
}
