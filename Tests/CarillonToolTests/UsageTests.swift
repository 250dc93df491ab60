// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@testable import CarillonTool

/// What `carillon` refuses, with which exit code, and what it says then.
@Suite("carillon: usage and refusals", .serialized, .limited)
struct UsageTests {
    /// No bus is needed to see that the arguments are wrong.
    @Test(
        "B3: wrong usage causes exit status 1 and a message with the cause, without a connection to the bus",
        arguments: [
            (["ring"], "there is no command 'ring'\nTry 'carillon --help'."),
            (["pots"], "there is no command 'pots'; did you mean 'post'?\nTry 'carillon --help'."),
            (["help", "obsrve"], "there is no command 'obsrve'; did you mean 'observe'?\nTry 'carillon help --help'."),
            (["help", "post", "observe"], "help takes one COMMAND"),
            (["post", "Ding", "--retian"], "there is no option --retian; did you mean '--retain'?"),
            (["observe", "--versoin"], "did you mean '--version'?\nTry 'carillon observe --help'."),
            (["post", "Ding", "--retain=false"], "--retain takes no value; 'false' was given"),
            (["observe", "--json=no"], "--json takes no value; 'no' was given"),
            (["post", "Ding", "--help=yes"], "--help takes no value"),
            (["post", "-x", "Ding"], "there is no option -x\nTry 'carillon post --help'."),
            (["reload", "now"], "reload takes no argument 'now'"),
            (["check", ""], "'' is not a FILE"),
            (["post", "Ding", "--expires", "0"], "--expires: '0' is not a time from 1 to 4294967295 seconds"),
            (["post", "Ding", "--expires", "1.5"], "--expires: '1.5' is not a whole number of seconds"),
            (["post", "Ding", "--expires", "5 m"], "--expires: '5 m' is not a time such as 90"),
            (["post", "Ding", "--repeat", "4000001"], "--repeat: '4000001' is not a whole number from 1 to 4000000"),
            (["replay", "x", "--speed", "0"], "--speed: '0' is not a number from 0.001 to 1000"),
            (["observe", "--interval", "0.0001"], "is not a time from 0.001 to 4000000 seconds"),
            (["--no-such-option"], "--no-such-option"),
            (["post"], "post needs a NAME"),
            (["post", "--no-such-option", "Ding"], "--no-such-option"),
            (["post", "Ding", "novalue"], "'novalue' is not KEY=VALUE"),
            (["post", "Ding", "=3"], "'=3' is not KEY=VALUE"),
            (["post", "Ding", "a=1", "a=2"], "the key 'a' is given twice"),
            (["post", "Ding", "a=1", "--string", "a=2"], "the key 'a' is given twice"),
            (["post", "Ding", "--string", "novalue"], "'novalue' is not KEY=VALUE"),
            (["post", "Ding", "a=18446744073709551616"], "out of the range of 64-bit integers"),
            (["post", "Ding", "a=-9223372036854775809"], "out of the range of 64-bit integers"),
            (["post", "Ding", "a=1e309"], "out of the range of floating-point numbers"),
            (["post", "Ding", "--object"], "object"),
            (["post", "Ding", "--json", "{}", "a=1"], "--json can't be combined"),
            (["post", "Ding", "--json", "{}", "--string", "a=1"], "--json can't be combined"),
            (["post", "Ding", "--json", ""], "not valid JSON"),
            (["post", "Ding", "--json", "{"], "not valid JSON"),
            (["post", "Ding", "--json", "{\"a\": 1} x"], "not valid JSON"),
            (["post", "Ding", "--json", "{'a': 1}"], "not valid JSON"),
            (["post", "Ding", "--json", "{\"a\": 01}"], "not valid JSON"),
            (["post", "Ding", "--json", "[1]"], "the JSON is not an object"),
            (["post", "Ding", "--json", "3"], "the JSON is not an object"),
            (["post", "Ding", "--json", "null"], "the JSON is not an object"),
            (["post", "Ding", "--json", "{\"a\": null}"], "userInfo.a: null is not a property-list value"),
            (["post", "Ding", "--json", "{\"a\": [1, {\"b\": null}]}"], "userInfo.a[1].b: null"),
            (["post", "Ding", "--json", "{\"a\": 18446744073709551616}"], "userInfo.a"),
            (["post", "Ding", "--json", "{\"a\": -9223372036854775809}"], "userInfo.a"),
            (["post", "Ding", "--json", "{\"a\": 1e309}"], "1e309"),
            (["post", "Ding", "--json", "{\"a\": {\"$data\": \"*\"}}"], "userInfo.a: '$data' is not base64"),
            (["post", "Ding", "--json", "{\"a\": {\"$date\": \"today\"}}"], "userInfo.a: '$date' is not like"),
            (["post", "Ding", "--json", "{\"a\": {\"$date\": \"2026-02-30T00:00:00Z\"}}"], "'$date' is not like"),
            (["post", "Ding", "--json", "{\"a\": {\"$date\": \"2026-02-03T24:00:00Z\"}}"], "'$date' is not like"),
            (["post", "Ding", "--json", "{\"a\": {\"$double\": \"1\"}}"], "userInfo.a: '$double' is none of"),
            (["post", "Ding", "--json", "{\"a\": \"\\u0000\"}"], "userInfo.a"),
            (
                ["post", "Ding", "--posting-style", "later"],
                "--posting-style: 'later' is none of: now, asap, when-idle"
            ),
            (["post", "Ding", "--coalesce-on", "sender"], "--coalesce-on: 'sender' is none of: name, object"),
            (["post", "Ding", "--coalesce-on", "name,"], "--coalesce-on: '' is none of"),
            (["post", "Ding", "--coalesce-on"], "coalesce-on"),
            (["why"], "why needs a CLIENT"),
            (["why", ""], "a CLIENT is a unique name"),
            (["why", ":1.4 2"], "':1.4 2' is not a client"),
            (["why", "1", "Ding", "x"], "why takes a CLIENT and a NAME"),
            (["why", "1", ""], "'' is not the name of a notification"),
            (["why", "1", "--object", "x"], "--object needs a NAME"),
            (["suspend"], "suspend needs a CLIENT"),
            (["resume", "1", "2"], "resume takes one CLIENT"),
            (["follow", ""], "a CLIENT is a unique name"),
            (["observe", "--no-such-option"], "--no-such-option"),
            (["observe", "--run-loop-mode", "idle"], "--run-loop-mode: 'idle' is none of"),
            (["observe", "--suspension-behavior", ""], "--suspension-behavior: '' is none of: drop, coalesce"),
            (["observe", "--count", "0"], "--count: '0' is not a whole number"),
            (["observe", "--count", "-1"], "--count: '-1' is not a whole number"),
            (["observe", "--count", "1.5"], "--count: '1.5' is not a whole number"),
            (["observe", "--count", "x"], "--count: 'x' is not a whole number"),
            (["observe", "--count", "99999999999999999999"], "--count"),
            (["observe", "--timeout", "0"], "--timeout: '0' is not a time from 0.001"),
            (["observe", "--timeout", "nan"], "--timeout: 'nan' is not a time such as"),
            (["observe", "--timeout", "inf"], "--timeout: 'inf' is not a time such as"),
            (["observe", ""], "is not the name of a notification"),
        ])
    func usage(arguments: [String], message: String) throws {
        let result = try runWithoutBus(arguments)
        #expect(result.status == .exited(1), "\(result)")
        #expect(result.standardError.contains(message), "\(result)")
        #expect(result.standardError.hasPrefix("carillon: "), "\(result)")
        #expect(result.standardOutput.isEmpty, "\(result)")
    }

    @Test("carillon without arguments lists its commands and exits with code 1")
    func bare() throws {
        let result = try runWithoutBus([])
        #expect(result.status == .exited(1) && result.standardOutput.isEmpty, "\(result)")
        for command in CarillonTool.commands {
            #expect(result.standardError.contains("\n  \(command.name) "), "\(result)")
        }
    }

    @Test("help COMMAND prints the same text as COMMAND --help", arguments: CarillonTool.commands.map(\.name))
    func helpOfCommand(name: String) throws {
        let result = try runWithoutBus(["help", name])
        #expect(result.status == .exited(0) && result.standardError.isEmpty, "\(result)")
        #expect(result.standardOutput.hasPrefix("Usage:\n  carillon \(name)"), "\(result)")
        #expect(try runWithoutBus([name, "--help"]).standardOutput == result.standardOutput)
    }

    @Test("help without arguments prints the same text as --help")
    func helpAlone() throws {
        #expect(try runWithoutBus(["help"]).standardOutput == runWithoutBus(["--help"]).standardOutput)
    }

    @Test("The British spelling of options is accepted")
    func british() throws {
        let result = try runWithoutBus(["observe", "--suspension-behaviour", "drop", "--colour=never"])
        #expect(result.status == .exited(2), "it is the bus that is missing: \(result)")
    }

    @Test("A short option means the same to every command")
    func shortOptions() throws {
        var meanings: [Character: Set<String>] = [:]
        for command in CarillonTool.commands {
            let error = #expect(throws: UsageError.self) { try command.run([CommandLineParser.declarationsRequest]) }
            for option in try #require(error?.declarations).options {
                if let short = option.short { meanings[short, default: []].insert(option.long) }
            }
        }
        #expect(meanings.count > 10)
        for (short, names) in meanings { #expect(names.count == 1, "-\(short): \(names)") }
    }

    @Test(
        "Help or a version that can't be written causes exit status 5",
        arguments: [
            "carillon --help", "carillon help post", "carillon post --version", "carillond --help",
            "carillond --version",
        ])
    func fullDisk(command: String) throws {
        let words = command.split(separator: " ").map(String.init)
        let result = try Command.run(
            "sh", ["-c", "\"$0\" \"$@\" >/dev/full", try Executables.path(of: words[0])] + words.dropFirst(),
            environment: environmentWithoutBus)
        #expect(result.status == .exited(5) && result.standardError.contains("standard output: "), "\(result)")
    }

    @Test(
        "Times with units are read as seconds, and invalid times are not accepted",
        arguments: [
            ("90", 90), ("0.5", 0.5), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("250ms", 0.25), ("1m5s", 65),
            ("1.5h", 5400), ("5min", 300), ("0s", 0), ("", nil), ("m", nil), ("5x", nil), ("1h30", nil), ("30m1h", nil),
            ("5m5m", nil), ("-5", nil), ("5 m", nil), ("1e3", nil), (".5", nil), ("٥", nil), ("1..2", nil), ("5M", nil),
        ] as [(String, Double?)])
    func times(text: String, seconds: Double?) {
        #expect(NumberArguments.seconds(in: text) == seconds)
    }

    @Test(
        "N3: a JSON object with a duplicate key is refused",
        arguments: [
            #"{"a": 1, "a": 2}"#, #"{"a": 1, "\u0061": 2}"#, #"{"x": [{"b": {"a": "}"}, "a": 1, "a": []}]}"#,
            #"{"\"{": 1, "\"{": 2}"#,
        ])
    func duplicateKeys(json: String) throws {
        let result = try runWithoutBus(["post", "Ding", "--json", json])
        #expect(result.status == .exited(1), "\(result)")
        #expect(result.standardError.contains("is given twice"), "\(result)")
    }

    @Test(
        "Equal keys in different objects are no duplicates",
        arguments: [#"{"a": {"a": {"a": ":"}}, "b": [{"a": 1}, {"a": 1}]}"#, #"{"a": ["a", "a"], "b": "a\": a"}"#])
    func sameKeyElsewhere(json: String) throws {
        // The arguments are fine, so the missing bus is what ends it.
        #expect(try runWithoutBus(["post", "Ding", "--json", json]).status == .exited(2))
    }

    @Test("An argument that is not UTF-8 is refused, not altered", arguments: ["post", "observe"])
    func notUTF8(command: String) throws {
        let result = try Command.run(
            "sh", ["-c", "exec \"$0\" \(command) \"$(printf 'D\\377')\"", try Bell.path()],
            environment: environmentWithoutBus)
        #expect(result.status == .exited(1), "\(result)")
        #expect(result.standardError.contains("not valid UTF-8"), "\(result)")
    }

    @Test("E1, N1: a refusal by the service gives exit code 1 and the service's message", arguments: BusKind.available)
    func refused(kind: BusKind) throws {
        let bell = try Bell(kind)
        func expect(_ result: CommandResult, _ message: String) {
            #expect(result.status == .exited(1), "\(result)")
            #expect(result.standardError.hasPrefix("carillon: \(message)"), "\(result)")
            #expect(result.standardOutput.isEmpty, "\(result)")
        }
        expect(try bell.run("post", ""), "the name of a notification must not be empty")
        expect(try bell.run("post", String(repeating: "x", count: 1025)), "over the limit name-length = 1024")
        expect(
            try bell.run("post", "Ding", "--object", String(repeating: "x", count: 4097)),
            "over the limit object-length = 4096")
        let deep = String(repeating: #"{"a": "#, count: 17) + "1" + String(repeating: "}", count: 17)
        expect(try bell.run("post", "Ding", "--json", deep), "over the limit user-info-depth = 16")
        let veryDeep = String(repeating: #"{"a": "#, count: 40) + "1" + String(repeating: "}", count: 40)
        expect(try bell.run("post", "Ding", "--json", veryDeep), "over the limit user-info-depth")
        expect(
            try bell.run("observe", String(repeating: "x", count: 1025)), "over the limit name-length = 1024")
        // It lives on.
        try bell.post("Ding")
    }

    @Test(
        "B3: a missing bus causes exit status 2",
        arguments: [
            ["post", "Ding"], ["observe"], ["observe", "Ding", "--count", "1"], ["bridge", "status"],
            ["bridge", "test"],
            ["bridge", "reload"], ["bridge", "forget", "desk/ann"],
        ])
    func noBus(arguments: [String]) throws {
        let result = try runWithoutBus(arguments)
        #expect(result.status == .exited(2), "\(result)")
        #expect(result.standardError.hasPrefix("carillon: no bus: "), "\(result)")
    }

    @Test("B3: post and observe exit with code 2 on a bus without the service", arguments: BusKind.available)
    func noService(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        for arguments in [["post", "Ding"], ["observe"], ["observe", "Ding", "--timeout", "600"]] {
            let result = try Command.run(try Bell.path(), arguments, environment: bus.environment)
            #expect(result.status == .exited(2), "\(result)")
            #expect(result.standardError.contains("carillon: "), "\(result)")
        }
    }

    @Test("B3: observe exits with code 2 when the bus ends", arguments: BusKind.available)
    func busEnds(kind: BusKind) throws {
        let bell = try Bell(kind)
        let observer = try bell.observe()
        kill(bell.bus.pid, SIGKILL)
        #expect(try observer.waitForExit() == .exited(2), "\(observer.transcript)")
        #expect(observer.standardError.contains("the bus closed the connection"))
    }

    @Test(
        "B3: --help prints the options on standard output, without a bus",
        arguments: [
            (["--help"], ["post", "observe", "--version", "Exit status"]),
            (
                ["post", "--help"],
                [
                    "--object", "--json", "--string", "--deliver-immediately", "--posting-style", "--coalesce-on",
                    "--version",
                ]
            ),
            (
                ["observe", "--help"],
                [
                    "--object", "--suspension-behavior", "--run-loop-mode", "--json", "--count", "--timeout",
                    "--version",
                ]
            ),
        ])
    func help(arguments: [String], texts: [String]) throws {
        let result = try runWithoutBus(arguments)
        #expect(result.status == .exited(0), "\(result)")
        for text in texts { #expect(result.standardOutput.contains(text), "\(result)") }
        #expect(result.standardError.isEmpty, "\(result)")
    }

    @Test(
        "B3: --version prints one line on standard output, without a bus",
        arguments: [["--version"], ["post", "--version"], ["observe", "--version"]])
    func version(arguments: [String]) throws {
        let result = try runWithoutBus(arguments)
        #expect(result.status == .exited(0), "\(result)")
        #expect(result.standardOutput.wholeMatch(of: /carillon [0-9]+\.[0-9]+\.[0-9]+\n/) != nil, "\(result)")
        #expect(result.standardError.isEmpty, "\(result)")
    }

    private func runWithoutBus(_ arguments: [String]) throws -> CommandResult {
        try Command.run(try Bell.path(), arguments, environment: environmentWithoutBus)
    }

    private var environmentWithoutBus: [String: String] {
        var environment = ["PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": "/nonexistent"]
        environment["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/nonexistent/bus"
        environment["LD_LIBRARY_PATH"] = ProcessInfo.processInfo.environment["LD_LIBRARY_PATH"]
        return environment
    }
}
