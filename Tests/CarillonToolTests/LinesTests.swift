// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("B3, Q7: carillon post --lines", .serialized, .limited)
struct LinesTests {
    private func run(_ bell: Bell, _ arguments: [String], input: String) throws -> CommandResult {
        try Command.run(
            "sh", ["-c", "printf %s \"$INPUT\" | \"$0\" post \"$@\"", Bell.path()] + arguments,
            environment: bell.bus.environment.merging(["INPUT": input]) { $1 })
    }

    @Test("--lines posts each line of pairs or JSON in order, and adds the pairs of the command line")
    func lines() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--json", "--count", "4")
        let input = "n=1\n\n{\"n\": 3, \"text\": \"two words\"}\nn=4  always=no"
        let result = try run(bell, ["Ding", "always=yes", "--lines", "--verbose"], input: input)
        #expect(result.exitCode == 0 && result.standardOutput == String(repeating: "1 client\n", count: 4), "\(result)")
        let texts = try (1...4).map { _ in try ObservedLine(observer.nextLine()).userInfoText }
        #expect(texts[0].contains("\"n\": 1") && texts[0].contains("\"always\": \"yes\""))
        #expect(texts[1] == "{\"always\": \"yes\"}")
        #expect(texts[2].contains("\"two words\""))
        #expect(texts[3].contains("\"always\": \"no\""))
    }

    @Test(
        "Pairs in a line are quoted as in a shell",
        arguments: [
            (#"a="two words" b='it"s'"#, #"{"a": "two words", "b": "it\"s"}"#),
            (#"a=x\ y "b=1""#, #"{"a": "x y", "b": 1}"#), (#"a="\"q\"\x" b="#, #"{"a": "\"q\"\\x", "b": ""}"#),
            ("\ta='' \r", #"{"a": ""}"#),
        ])
    func quoted(line: String, expected: String) throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--json", "--count", "1")
        #expect(try run(bell, ["Ding", "--lines"], input: line).exitCode == 0)
        #expect(try ObservedLine(observer.nextLine()).userInfoText == expected)
    }

    @Test("An unclosed quote or a final backslash is reported with its line number")
    func unquoted() throws {
        let bell = try Bell()
        let result = try run(bell, ["Ding", "--lines"], input: "a='x\nb=\"y\nc=\\")
        #expect(result.exitCode == 1)
        for (line, reason) in [(1, "' is not closed"), (2, "\" is not closed"), (3, "ends with a backslash")] {
            #expect(
                result.standardError.contains("line \(line): ") && result.standardError.contains(reason), "\(result)")
        }
    }

    @Test("A wrong line is reported, the other lines are posted, and the exit code is 1")
    func wrong() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--count", "2")
        let result = try run(bell, ["Ding", "--lines"], input: "a=1\nnonsense\n{\"a\": null}\na=2\n")
        #expect(result.exitCode == 1)
        #expect(result.standardError.contains("line 2: 'nonsense' is not KEY=VALUE"))
        #expect(result.standardError.contains("line 3: userInfo.a: null"))
        #expect(try observer.waitForExit() == .exited(0))
    }

    @Test("F1: each refused post is reported with its line and the error's name, in a batch or alone")
    func refused() throws {
        let bell = try Bell()
        let name = String(repeating: "x", count: 2000)
        let result = try run(bell, [name, "--lines"], input: String(repeating: "a=1\n", count: 1000))
        let lines = result.standardError.split(separator: "\n")
        #expect(result.exitCode == 1 && lines.count == 1000)
        let (alone, together) = (
            ": over the limit name-length = 1024 (org.carillon.Error.LimitExceeded)",
            ": the post was refused: it exceeds a limit of the service (org.carillon.Error.LimitExceeded)"
        )
        for (index, line) in lines.enumerated() {
            #expect(
                ["carillon: line \(index + 1)\(alone)", "carillon: line \(index + 1)\(together)"].contains("\(line)"))
        }
        let repeated = try bell.run("post", name, "--repeat", "300")
        let told = repeated.standardError.split(separator: "\n")
        #expect(repeated.exitCode == 1 && told.count == 300 && told[299].hasPrefix("carillon: post 300: "), "\(told)")
    }

    @Test("Q7: a hundred when-idle posts of a shell script that coalesce by name cost one delivery")
    func coalesced() throws {
        let bell = try Bell()
        let observer = try bell.observe("Progress", "--json", "--count", "2")
        let script = try RunningCommand(
            try Bell.path(), ["post", "Progress", "--lines", "--posting-style", "when-idle", "--coalesce-on", "name"],
            environment: bell.bus.environment)
        // The first one shows that the script is connected, and is delivered when the service is idle.
        script.write("percent=0\n")
        #expect(try ObservedLine(observer.nextLine()).userInfoText == "{\"percent\": 0}")
        try bell.service.whileStopped(untilPosts: 100) {
            script.write((1...100).map { "percent=\($0)\n" }.joined())
            script.closeInput()
        }
        #expect(try script.waitForExit() == .exited(0), "\(script.transcript)")
        #expect(try ObservedLine(observer.nextLine()).userInfoText == "{\"percent\": 100}")
        #expect(try observer.waitForExit() == .exited(0))
        let status = try bell.run("status")
        #expect(status.standardOutput.contains(/\n\s+delivered\s+2\s/), "\(status)")
    }

    @Test("Q7: each of a thousand coalescing when-idle posts is either delivered or coalesced")
    func thousand() throws {
        let bell = try Bell()
        let observer = try bell.observe("Progress", "--json")
        let input = (1...1000).map { "percent=\($0)\n" }.joined()
        let result = try run(
            bell, ["Progress", "--lines", "--posting-style", "when-idle", "--coalesce-on", "name"], input: input)
        #expect(result.exitCode == 0, "\(result)")
        _ = try observer.nextLine { $0.contains("{\"percent\": 1000}") }
        let status = try bell.run("status", "--json")
        let object = try ObservedLine(status.standardOutput).members
        let statistics = try #require(object["Statistics"] as? [String: Any], "\(status)")
        let counts = ["delivered", "coalesced"].map { statistics[$0] as? Int ?? -1 }
        #expect(counts.reduce(0, +) == 1000, "\(status)")
    }

    @Test("Empty input makes no post, and 3,000 lines, more than may await an answer, all arrive")
    func amounts() throws {
        let bell = try Bell()
        #expect(try run(bell, ["Ding", "--lines"], input: "").exitCode == 0)
        let observer = try bell.observe("Ding", "--count", "3000")
        let result = try run(bell, ["Ding", "--lines"], input: String(repeating: "a=1\n", count: 3000))
        #expect(result.exitCode == 0, "\(result)")
        #expect(try observer.waitForExit() == .exited(0))
    }
}
