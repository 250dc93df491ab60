// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("The examples of README.md", .limited)
struct ReadmeTests {
    @Test("The first example equals the program in Examples, which receives and prints its own post")
    func example() async throws {
        let root = URL(fileURLWithPath: Executables.packageRoot)
        let source = try String(
            contentsOf: root.appendingPathComponent("Examples/swift/Saved/main.swift"), encoding: .utf8)
        let readme = try String(contentsOf: root.appendingPathComponent("README.md"), encoding: .utf8)
        // All but the line about the licence.
        let program = source.drop { $0 != "\n" }.dropFirst()
        #expect(readme.contains("```swift\n\(program)```"))

        let bus = try PrivateBus(.dbusDaemon, activations: [.service()])
        let result = try await onOwnThread {
            try Command.run(
                try Executables.path(of: "carillon-example-saved"), [], environment: bus.environment)
        }
        #expect(result.exitCode == 0 && result.standardOutput == "saved: report.txt 4711\n", "\(result)")
    }

    @Test("The two lines about presence work as described, and are equal in README.md and the documentation")
    func presence() async throws {
        let readme = try String(
            contentsOf: URL(fileURLWithPath: Executables.packageRoot).appendingPathComponent("README.md"),
            encoding: .utf8)
        let page = try String(
            contentsOf: URL(fileURLWithPath: Executables.packageRoot).appendingPathComponent(
                "Sources/Carillon/Carillon.docc/DistributedNotificationCenter.md"), encoding: .utf8)
        let source = try String(contentsOf: URL(fileURLWithPath: #filePath), encoding: .utf8)
        let block = try #require(readme.firstMatch(of: /```swift\n(try await center\.post.*\n.*postAtExit.*\n)```/)).1
        #expect(page.contains("```swift\n\(block)```"))
        for line in block.split(separator: "\n") { #expect(source.contains("\n            \(line)\n"), "\(line)") }

        let desk = try Desk()
        let watcher = try RunningCommand(
            try Executables.path(of: "carillon"),
            ["observe", "--retained", "com.example.Here", "com.example.Gone", "--count", "2"],
            environment: desk.bus.environment)
        _ = try watcher.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
        do {
            let center = desk.center()
            try await center.postAndWait(named: .init("com.example.Here"), object: "anna", retention: .whileConnected)
            try await center.postAtExit(named: .init("com.example.Gone"), object: "anna")
            let there = try Command.run(
                try Executables.path(of: "carillon"), ["get", "com.example.Here"], environment: desk.bus.environment)
            #expect(there.exitCode == 0 && there.standardOutput.hasPrefix("com.example.Here  anna"), "\(there)")
        }
        #expect(try watcher.waitForExit() == .exited(0))
        let lines = watcher.standardOutput.split(separator: "\n")
        try #require(lines.count == 2, "\(watcher.transcript)")
        #expect(lines[0].hasPrefix("com.example.Here  anna") && lines[1].hasPrefix("com.example.Gone  anna"))
        let gone = try Command.run(
            try Executables.path(of: "carillon"), ["get", "com.example.Here"], environment: desk.bus.environment)
        #expect(gone.exitCode == 6, "\(gone)")
    }
}
