// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("B3: carillon wait", .serialized, .limited)
struct WaitTests {
    @Test(
        "wait registers before it runs its command, so no notification of the command is missed",
        arguments: BusKind.available)
    func command(kind: BusKind) throws {
        let bell = try Bell(kind)
        for round in 1...5 {
            let result = try bell.run("wait", "Ding", "--", try Bell.path(), "post", "Ding", "round=\(round)")
            #expect(result.exitCode == 0, "\(result)")
            #expect(result.standardOutput == "Ding  {\"round\": \(round)}\n")
        }
    }

    @Test("wait exits with the status of a failed command, and with 127 if the command does not exist")
    func failing() throws {
        let bell = try Bell()
        let failed = try bell.run("wait", "Ding", "--", "sh", "-c", "exit 9")
        #expect(failed.exitCode == 9 && failed.standardError.contains("sh ended with status 9"), "\(failed)")
        let killed = try bell.run("wait", "Ding", "--", "sh", "-c", "kill -9 $$")
        #expect(killed.exitCode == 137, "\(killed)")
        let missing = try bell.run("wait", "Ding", "--", "/nowhere/at-all", "--json")
        #expect(missing.exitCode == 127 && missing.standardError.contains("/nowhere/at-all"), "\(missing)")
    }

    @Test("After a successful command, wait continues until the notification arrives")
    func goesOn() throws {
        let bell = try Bell()
        let wait = try RunningCommand(
            try Bell.path(), ["wait", "Ding", "--quiet", "--", "sh", "-c", "echo done"],
            environment: bell.bus.environment)
        #expect(try wait.nextLine() == "done")
        #expect(wait.isRunning)
        try bell.post("Ding")
        #expect(try wait.waitForExit() == .exited(0))
        #expect(wait.standardOutput == "done\n")
    }

    @Test("wait exits with status 3 at its --timeout")
    func timeout() throws {
        let result = try Bell().run("wait", "Ding", "--timeout", "0.2")
        #expect(result.exitCode == 3 && result.standardError.contains("in time"), "\(result)")
    }

    @Test("wait accepts a retained value only with --retained")
    func retained() throws {
        let bell = try Bell()
        try bell.post("Level", "--object", "main", "--retain", "n=1")
        let there = try bell.run("wait", "Level", "--retained", "--timeout", "60")
        #expect(there.exitCode == 0 && there.standardOutput == "Level  main  {\"n\": 1}\n", "\(there)")
        #expect(try bell.run("wait", "Level", "--timeout", "0.2").exitCode == 3)
    }

    @Test("wait counts the notifications that match --glob and every --match, and ends at its --count")
    func choosing() throws {
        let bell = try Bell()
        let wait = try RunningCommand(
            try Bell.path(),
            ["wait", "--glob", "com.example.*", "--match", "job.state=done", "--match", "n", "--count", "2"],
            environment: bell.bus.environment)
        #expect(try wait.nextErrorLine { $0.hasPrefix("waiting") } == "waiting for com.example.*")
        try bell.post("com.example.A", "n=1")
        try bell.post("com.example.A", "--json", #"{"job": {"state": "done"}}"#)
        try bell.post("org.example.A", "--json", #"{"n": 1, "job": {"state": "done"}}"#)
        try bell.post("com.example.A", "--json", #"{"n": 1, "job": {"state": "done"}}"#)
        try bell.post("com.example.B", "--json", #"{"n": "x", "job.state": "done"}"#)
        #expect(try wait.waitForExit() == .exited(0), "\(wait.transcript)")
        #expect(wait.standardOutput.split(separator: "\n").map { $0.prefix(13) } == ["com.example.A", "com.example.B"])
    }

    @Test("--match n=3 accepts the numbers 3 and 3.0 and the string 3, but not 30, 3x or true")
    func numbers() throws {
        let bell = try Bell()
        let wait = try RunningCommand(
            try Bell.path(), ["wait", "Ding", "--match", "n=3", "--count", "3", "--format", "%{i}"],
            environment: bell.bus.environment)
        _ = try wait.nextErrorLine { $0.hasPrefix("waiting") }
        for (index, value) in ["n=3", "n=3.0", "n=30", "n=3x", "n=true"].enumerated() {
            try bell.post("Ding", value, "i=\(index)")
        }
        try bell.post("Ding", "--string", "n=3", "i=5")
        #expect(try wait.waitForExit() == .exited(0))
        #expect(wait.standardOutput == "0\n1\n5\n")
    }

    @Test("Wrong arguments of wait, observe, replay and post are reported before the bus is used")
    func usage() throws {
        for (arguments, message) in [
            (["wait"], "wait needs a NAME"), (["wait", "A", "B"], "wait takes one NAME"),
            (["wait", "A", "--"], "wait needs a COMMAND"), (["wait", "A", "--", ""], "wait needs a COMMAND"),
            (["wait", "A", "--glob", "*"], "exclude each other"), (["wait", "A", "--match", "=1"], "is neither KEY"),
            (["wait", "A", "--json", "--long"], "exclude each other"),
            (["wait", "A", "--format", "%z"], "is not a field"),
            (["wait", "A", "--format", "%{a"], "needs a key"),
            (["wait", "A", "--format", "50%"], "'%' is not a field"),
            (["observe", "--exec", ""], "is not a command"), (["observe", "--record", "/nowhere/at/all"], "--record"),
            (["replay"], "replay needs a FILE"), (["replay", "/nowhere/at/all"], "No such file"),
            (["replay", "a", "b"], "takes one FILE"), (["replay", "-", "--speed", "0"], "--speed"),
            (["replay", "-", "--speed", "2", "--fast"], "exclude each other"),
            (["post", "A", "--delay", "1"], "--delay needs --repeat"), (["post", "A", "--repeat", "0"], "--repeat"),
            (["post", "A", "--repeat", "2", "--lines"], "exclude each other"),
            (["post", "A", "--json", "-", "--lines"], "would both read"),
        ] {
            let result = try Command.run(
                try Bell.path(), arguments, environment: ["PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"])
            #expect(result.exitCode == 1 && result.standardError.contains(message), "\(arguments): \(result)")
        }
    }
}
