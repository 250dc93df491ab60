// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("macOS programs with unchanged sources (B4)", .limited)
struct MacOSSourcesTests {
    @Test("A Swift 5 program runs unchanged, with tokens, object filters, queues, deinits and suspension")
    func swift5() throws {
        let stage = try Stage(.activation)
        let program = try stage.program("carillon-macos-swift5", "watch", untilLine: "ready true", registered: 8)
        func expect(_ line: String) throws {
            let next = try program.nextLine()
            #expect(next == line, "\(program.transcript)")
        }

        try stage.post("AppleInterfaceThemeChangedNotification")
        try expect("theme 1 false true")
        try stage.post("AppleInterfaceThemeChangedNotification")
        try expect("theme 2 false true")

        // Removing all tokens of an array, on the queue that the observers run on.
        try stage.post("com.apple.screenIsLocked")
        try expect("screen true true")
        try stage.post("com.apple.screenIsUnlocked")
        try expect("screen false true")
        try eventually("two registrations are gone") { try observerCounts(on: stage.bus) == [6] }

        // Only that object; a value in another dress than the one it was posted in.
        try stage.post("com.apple.Music.playerInfo", "--object", "com.example.Other", "Name=no")
        let track = ["Artist=B", "Total Time=212000", "Rating=60", "Loved=true"]
        try stage.post(
            "com.apple.Music.playerInfo", "--object", "com.apple.Music.player", "Name=A", "Player State=Playing",
            track[0], track[1], track[2], track[3])
        try expect("track A B 212.0 60 true")
        // The deinit of an object that removes its token while its own block runs.
        try stage.post(
            "com.apple.Music.playerInfo", "--object", "com.apple.Music.player", "Name=C", "Player State=Stopped")
        try expect("track C - 0.0 0 false")
        try expect("stopped true")
        try eventually("its registration is gone") { try observerCounts(on: stage.bus) == [5] }

        // Other processes that post and end at once.
        #expect(try stage.run("carillon-macos-swift5", "open", "report.txt").exitCode == 0)
        try expect("open report.txt 7 true")
        #expect(try stage.run("carillon-macos-swift5", "set", "Cantarell").exitCode == 0)
        try expect("preferences Cantarell [9, 12] 2")

        // While suspended only what is posted to be delivered immediately arrives.
        try stage.post("com.example.Reader.activate", "--object", "no")
        try expect("suspended true")
        try stage.waitUntilSuspended(true, program)
        try stage.post("AppleInterfaceThemeChangedNotification")
        try stage.post("AppleInterfaceThemeChangedNotification")
        // It brings what was held before it with it (S3), coalesced.
        #expect(try stage.run("carillon-macos-swift5", "open", "urgent.txt").exitCode == 0)
        try expect("theme 3 false true")
        try expect("open urgent.txt 7 true")
        try stage.post("--deliver-immediately", "com.example.Reader.activate", "--object", "yes")
        try expect("suspended false")

        try stage.post("com.example.Reader.quit")
        #expect(try program.waitForExit().code == 3, "\(program.transcript)")
    }

    @Test("A program that exits right after posting loses no post in any call form", arguments: 0..<5)
    func posts(round: Int) throws {
        let stage = try Stage(.activation)
        let observer = try RunningCommand(
            try Executables.path(of: "carillon"), ["observe", "--json", "com.example.Posted"],
            environment: stage.bus.environment)
        _ = try observer.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
        let result = try stage.run("carillon-macos-swift5", "post", "com.example.Posted")
        #expect(result.exitCode == 0 && result.standardError.isEmpty, "\(result)")
        let lines = try (0..<4).map { _ in try observer.nextLine() }
        #expect(lines.map { $0.contains(#""object": "object""#) } == [false, true, false, false])
        #expect(lines[3].contains(#""userInfo": {"a": [1, "b", true]}"#), "\(lines[3])")
    }

    @Test("A Swift 6 program runs unchanged, with the main actor, actors, sequences and cancellation")
    func swift6() throws {
        let stage = try Stage(.activation)
        let program = try stage.program("carillon-macos-swift6", untilLine: "ready", registered: 4)
        func expect(_ expected: Set<String>) throws {
            var lines: Set<String> = []
            for _ in expected { lines.insert(try program.nextLine()) }
            #expect(lines == expected, "\(program.transcript)")
        }

        try stage.post("AppleInterfaceThemeChangedNotification")
        try expect(["theme 1"])
        #expect(try stage.run("carillon-macos-swift6", "/b").exitCode == 0)
        try expect(["saved /b 1"])
        #expect(try stage.run("carillon-macos-swift6", "/a").exitCode == 0)
        try expect(["saved /a 2", "archived /a 42 3 1"])
        try stage.post("com.example.quit")
        try expect(["quit com.example.quit"])
        try expect(["done"])
        #expect(try program.waitForExit().code == 0, "\(program.transcript)")
    }
}
