// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("B3: carillon observe --record, carillon replay, and post --repeat", .serialized, .limited)
struct ReplayTests {
    @Test("replay posts a recording again, unchanged and in order", arguments: BusKind.available)
    func roundTrip(kind: BusKind) throws {
        let bell = try Bell(kind)
        let directory = try TemporaryDirectory()
        let file = directory.path + "/recording"
        let recorder = try bell.observe("--record", file, "--count", "3")
        let payload = #"{"a": 1, "b": 1.0, "c": {"$data": "aGVsbG8="}, "d": {"$date": "2026-11-21T09:30:00Z"}}"#
        try bell.post("Ding", "--object", "x", "--json", payload)
        try bell.post("Dong")
        try bell.post("Ding", "text=\u{E9}\"\\")
        #expect(try recorder.waitForExit() == .exited(0), "\(recorder.transcript)")
        #expect(recorder.standardOutput.split(separator: "\n").count == 3)
        #expect(try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int == 0o600)

        let observer = try bell.observe("--json", "--count", "3")
        let result = try bell.run("replay", file, "--fast", "--verbose")
        #expect(result.exitCode == 0 && result.standardOutput == "1 client\n1 client\n1 client\n", "\(result)")
        #expect(try observer.waitForExit() == .exited(0))
        let lines = try observer.standardOutput.split(separator: "\n").map { try ObservedLine(String($0)) }
        #expect(lines.map { $0.members["name"] as? String } == ["Ding", "Dong", "Ding"])
        #expect(lines.map(\.userInfoText) == [payload, "{}", #"{"text": "é\"\\"}"#])
        // A second run of the recorder adds to what there is.
        let second = try bell.observe("--record", file, "--count", "1")
        try bell.post("More")
        #expect(try second.waitForExit() == .exited(0))
        #expect(try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n").count == 4)
    }

    @Test("replay --speed 2 posts a recording in order, and not faster than at twice its pace")
    func pace() throws {
        let bell = try Bell()
        let directory = try TemporaryDirectory()
        let file = directory.path + "/recording"
        try [0, 500, 400, 1000].enumerated().map { index, milliseconds in
            let fraction = milliseconds / 1000 == 1 ? "01.000" : "00.\(milliseconds == 0 ? "000" : "\(milliseconds)")"
            return #"{"time": "2026-11-21T09:30:\#(fraction)Z", "name": "Ding", "userInfo": {"n": \#(index)}}"#
        }.joined(separator: "\n").write(toFile: file, atomically: true, encoding: .utf8)
        let observer = try bell.observe("Ding", "--json", "--count", "4", "--details")
        let started = Int(Date().timeIntervalSince1970 * 1000)
        #expect(try bell.run("replay", file, "--speed", "2").exitCode == 0)
        #expect(try observer.waitForExit() == .exited(0))
        let lines = try observer.standardOutput.split(separator: "\n").map { try ObservedLine(String($0)) }
        #expect(lines.map(\.userInfoText) == (0...3).map { "{\"n\": \($0)}" })
        let times = lines.map { (($0.members["details"] as? [String: Any])?["time"] as? Int ?? 0) / 1000 }
        // No earlier than it shall be; how much later is the machine's.
        #expect(times[1] - started >= 249 && times[2] >= times[1] && times[3] - started >= 499, "\(times)")
    }

    @Test("replay reports wrong lines and the recorded losses, and posts the other lines")
    func wrong() throws {
        let bell = try Bell()
        let observer = try bell.observe("--count", "2")
        let replay = try RunningCommand(try Bell.path(), ["replay", "-"], environment: bell.bus.environment)
        replay.write(
            """
            {"name": "Ding"}
            {"event": "dropped", "count": 7, "reason": "queue-full"}
            {"event": "missing", "count": 4}
            {"event": "service-gone"}
            nonsense

            {"object": "x"}
            {"name": "", "userInfo": {}}
            {"name": "Ding", "userInfo": [1]}
            {"name": "Ding", "time": "today"}
            {"name": "Dong", "object": "y"}
            {"event": "dropped", "count": -1}
            {"event": "missing"}
            """)
        replay.closeInput()
        #expect(try replay.waitForExit() == .exited(1), "\(replay.transcript)")
        #expect(try observer.waitForExit() == .exited(0))
        #expect(observer.standardOutput == "Ding\nDong  y\n")
        for (line, reason) in [
            (5, "not valid JSON"), (7, "the key \"name\" is missing"),
            (8, "the name of a notification must not be empty"),
            (9, "the JSON is not an object"),
            (10, "\"time\" is not like"), (12, "\"count\" is not a whole number"),
            (13, "\"count\" is not a whole number"),
        ] { #expect(replay.standardError.contains("line \(line): \(reason)"), "\(replay.transcript)") }
        #expect(replay.standardError.contains("11 notifications were lost when this was recorded"))
    }

    @Test(
        "observe and monitor exit with status 5 if the recording can't be written", arguments: ["observe", "monitor"])
    func full(command: String) throws {
        let bell = try Bell()
        let observer = try RunningCommand(
            try Bell.path(), [command, "--record", "/dev/full"], environment: bell.bus.environment)
        _ = try observer.nextErrorLine { $0.hasPrefix(command == "observe" ? "observing" : "monitoring") }
        try bell.post("Ding")
        #expect(try observer.waitForExit() == .exited(5), "\(observer.transcript)")
        #expect(observer.standardError.contains("/dev/full: No space left on device"))
    }

    @Test("--repeat posts the given number of times, in order and over one connection")
    func repeated() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--count", "1000", "--format", "%p %q %{n}")
        #expect(try bell.run("post", "Ding", "n=1", "--repeat", "1000").exitCode == 0)
        #expect(try observer.waitForExit() == .exited(0))
        let lines = observer.standardOutput.split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
        #expect(Set(lines.map { $0[0] }).count == 1)
        #expect(lines.map { $0[1] } == (1...1000).map(String.init))
        #expect(Set(lines.map { $0[2] }) == ["1"])
    }

    @Test("--delay separates the repetitions, and a refused repetition is reported by its number")
    func delayed() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--count", "3", "--json", "--details")
        let started = Int(Date().timeIntervalSince1970 * 1000)
        #expect(try bell.run("post", "Ding", "--repeat", "3", "--delay", "0.2").exitCode == 0)
        #expect(try observer.waitForExit() == .exited(0))
        let times = try observer.standardOutput.split(separator: "\n").map { line in
            let details = try ObservedLine(String(line)).members["details"] as? [String: Any]
            return (details?["time"] as? Int ?? 0) / 1000
        }
        #expect(times[1] - started >= 199 && times[2] - started >= 399, "\(times)")
        let refused = try bell.run("post", String(repeating: "x", count: 2000), "--repeat", "2")
        #expect(refused.exitCode == 1)
        #expect(refused.standardError.contains(try Regex("post 2: .*limit")), "\(refused)")
    }

    @Test("--json - reads standard input, and refuses invalid UTF-8 and JSON that is not an object")
    func standardInput() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--json", "--count", "1")
        func post(_ input: String) throws -> CommandResult {
            try Command.run(
                "sh", ["-c", "printf '\(input)' | \"$0\" post Ding --json -", try Bell.path()],
                environment: bell.bus.environment)
        }
        #expect(try post(#"\377"#).standardError.contains("not valid UTF-8"))
        #expect(try post("[1]").standardError.contains("the JSON is not an object"))
        #expect(try post("").standardError.contains("not valid JSON"))
        #expect(try post(#"{\n "a":\n 1}"#).exitCode == 0)
        #expect(try ObservedLine(observer.nextLine()).userInfoText == "{\"a\": 1}")
    }
}
