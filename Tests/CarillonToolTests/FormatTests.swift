// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

@Suite("B3: output formats of notifications", .serialized, .limited)
struct FormatTests {
    /// What one line of `--format` makes of a post.
    private func printed(_ format: String, _ bell: Bell, post: String...) throws -> String {
        let wait = try Command.run(
            try Bell.path(),
            ["wait", "--glob", "*", "--format", format, "--", try Bell.path(), "post"] + post,
            environment: bell.bus.environment.merging(["TZ": "UTC"]) { $1 })
        #expect(wait.exitCode == 0, "\(wait)")
        return String(wait.standardOutput.dropLast())
    }

    @Test("--format prints every field, entries of userInfo, and the usual escapes")
    func fields() throws {
        let bell = try Bell()
        #expect(
            try printed(#"%n|%o|%u|%{a}|%{b}|%{none}|%%|\t|\\"#, bell, post: "Ding", "-o", "x y", "a=1.0", "b=two")
                == "Ding|x y|{\"a\": 1.0, \"b\": \"two\"}|1.0|two||%|\t|\\")
        #expect(try printed("%q %s", bell, post: "Ding") == "1 2")
        #expect(try printed("%p", bell, post: "Ding").wholeMatch(of: /:1\.\d+/) != nil)
        #expect(try printed("%U %C", bell, post: "Ding") == "\(getuid()) carillon")
        #expect(
            try printed("%t", bell, post: "Ding").wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z/) != nil)
        #expect(try printed("%T", bell, post: "Ding").wholeMatch(of: /\d\d:\d\d:\d\d\.\d\d\d/) != nil)
        #expect(try printed("%m", bell, post: "Ding").wholeMatch(of: /\s*\+0\.\d\d\d s  #1/) != nil)
    }

    @Test("The time of a retained or held notification is that of its post", arguments: ["%T", "%t"])
    func postingTime(field: String) throws {
        let (bell, zone) = (try Bell(), ["TZ": "UTC"])
        // The field stands alone, as another one may have the service tell the time as well.
        let held = try bell.observe(
            "Level", "--suspension-behavior", "hold", "--format", field, "--count", "1", environment: zone)
        let suspended = try bell.run("suspend", "\(held.pid)")
        #expect(suspended.exitCode == 0, "\(suspended)")
        try bell.post("Level", "--retain")
        let value = try ObservedLine(bell.run("get", "Level", "--json").standardOutput)
        let posted = try #require((value.members["details"] as? [String: Any])?["time"] as? Int)
        let (seconds, milliseconds) = (posted / 1_000_000 % 86_400, posted / 1_000 % 1_000)
        let expected =
            field == "%t"
            ? ISO8601Date.text(Int64(posted))
            : String(
                format: "%02d:%02d:%02d.%03d", seconds / 3_600, seconds / 60 % 60, seconds % 60, milliseconds)

        // It may have ended before it would have said that it observes.
        let late = try bell.run(
            "observe", "Level", "--retained", "--format", field, "--count", "1", environment: zone)
        #expect(late.exitCode == 0 && late.standardOutput == expected + "\n", "\(late)")
        #expect(held.standardOutput.isEmpty, "it is held")
        let resumed = try bell.run("resume", "\(held.pid)")
        #expect(resumed.exitCode == 0, "\(resumed)")
        #expect(try held.waitForExit() == .exited(0))
        #expect(held.standardOutput == expected + "\n")
    }

    @Test("Control and direction characters in names and userInfo are printed as escapes")
    func harmless() throws {
        let bell = try Bell()
        #expect(try printed("%n %{a}", bell, post: "D\u{1B}[2J", "a=\u{202E}x") == #"D\u001b[2J \u202ex"#)
    }

    @Test("--long prints each entry of userInfo on a line of its own, with nested entries indented")
    func long() throws {
        let bell = try Bell()
        let result = try bell.run(
            "wait", "Ding", "--long", "--", try Bell.path(), "post", "Ding", "--object", "x", "--json",
            #"{"b": {"d": [1, 2], "c": "two words"}, "a": 1, "e": {}}"#)
        #expect(
            result.standardOutput == """
                Ding  x
                    a  1
                    b
                        c  two words
                        d  [1, 2]
                    e  {}

                """, "\(result)")
    }

    @Test(
        "--since-registration marks retained values as 'before', and later posts with time and sequence number",
        arguments: BusKind.available)
    func marks(kind: BusKind) throws {
        let bell = try Bell(kind)
        try bell.post("Level", "--retain", "n=1")
        let observer = try bell.observe("Level", "--retained", "--since-registration", "--count", "2")
        try bell.post("Level", "n=2")
        #expect(try observer.waitForExit() == .exited(0))
        let lines = observer.standardOutput.split(separator: "\n")
        #expect(lines.first?.wholeMatch(of: /\s*before  #1  Level  \{"n": 1\}/) != nil, "\(lines)")
        #expect(lines.last?.wholeMatch(of: /\s*\+\d+\.\d\d\d s  #2  Level  \{"n": 2\}/) != nil, "\(lines)")
        let json = try bell.run(
            "wait", "Level", "--since-registration", "--json", "--", try Bell.path(), "post", "Level")
        #expect(try ObservedLine(json.standardOutput).members["sinceRegistration"] is Double)
    }

    @Test("A name with pattern characters is matched literally, with a hint to use --glob")
    func pattern() throws {
        let bell = try Bell()
        let observer = try bell.observe("com.example.*", "--count", "1")
        try observer.waitForError(containing: "try --glob 'com.example.*'")
        try bell.post("com.example.a")
        try bell.post("com.example.*")
        #expect(try observer.waitForExit() == .exited(0))
        #expect(observer.standardOutput == "com.example.*\n")
    }

    @Test("monitor filters and prints notifications like observe, with the poster in front")
    func monitor() throws {
        let bell = try Bell()
        let monitor = try RunningCommand(
            try Bell.path(), ["monitor", "--glob", "a?", "--match", "n=1", "--count", "1"],
            environment: bell.bus.environment)
        _ = try monitor.nextErrorLine(within: .start) { $0.hasPrefix("monitoring") }
        for (name, entry) in [("abc", "n=1"), ("ab", "n=2"), ("ab", "n=1")] { try bell.post(name, entry) }
        #expect(try monitor.waitForExit() == .exited(0))
        #expect(monitor.standardOutput.wholeMatch(of: /:1\.\d+  ab  \{"n": 1\}\n/) != nil, "\(monitor.transcript)")
    }

    @Test("Piped output has colors only with --color always, and JSON has none")
    func colors() throws {
        let bell = try Bell()
        func line(_ options: String...) throws -> String {
            let arguments =
                ["wait", "Ding", "--count", "1"] + options + ["--", try Bell.path(), "post", "Ding", "-o", "x"]
            return try Command.run(try Bell.path(), arguments, environment: bell.bus.environment).standardOutput
        }
        #expect(try line() == "Ding  x\n")
        #expect(try line("--color", "always") == "\u{1B}[1mDing\u{1B}[0m  \u{1B}[32mx\u{1B}[0m\n")
        #expect(try ObservedLine(line("--color", "always", "--json")).members["object"] as? String == "x")
    }
}
