// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Testing

/// Serialized: GLib keeps the program's name for the process.
@Suite("The command-line parser", .serialized, .limited)
struct CommandLineParserTests {
    private struct Parsed: Equatable {
        var flag = false
        var text: String?
        var list: [String] = []
        var rest: [String] = []
    }

    private func parse(_ arguments: [String], stopsAtFirstArgument: Bool = false) throws -> Parsed {
        let parser = CommandLineParser(
            program: "bell", usage: "[NAME ...]", summary: "Rings.", stopsAtFirstArgument: stopsAtFirstArgument)
        let flag = parser.flag("flag", short: "f", help: "A flag")
        let text = parser.string("text", short: "t", placeholder: "TEXT", help: "A text")
        let list = parser.strings("list", short: "l", placeholder: "ITEM", help: "A list")
        let rest = try parser.parse(arguments)
        return Parsed(
            flag: parser.value(flag), text: parser.value(text), list: parser.value(list), rest: rest)
    }

    @Test("Without arguments all options have their defaults")
    func nothing() throws {
        #expect(try parse([]) == Parsed())
    }

    @Test("The inquiry argument returns the declared options in order and ends the parse")
    func declarations() throws {
        let parser = CommandLineParser(program: "bell", usage: "[NAME ...]", summary: "Rings.", description: "Loudly.")
        _ = parser.flag("flag", short: "f", help: "A flag")
        _ = parser.string("text", placeholder: "TEXT", help: "A text")
        _ = parser.strings("list", short: "l", placeholder: "ITEM", help: "A list")
        let error = #expect(throws: CommandLineParser.UsageError.self) {
            try parser.parse([CommandLineParser.declarationsRequest])
        }
        let declared = try #require(error?.declarations)
        #expect(declared.usage == "[NAME ...]" && declared.summary == "Rings." && declared.description == "Loudly.")
        #expect(declared.options.map(\.long) == ["flag", "text", "list", "help"])
        #expect(declared.options.map(\.short) == ["f", nil, "l", "h"])
        #expect(declared.options.map(\.placeholder) == [nil, "TEXT", "ITEM", nil])
        #expect(declared.options.map(\.help).prefix(3) == ["A flag", "A text", "A list"])
        #expect(CommandLineParser.UsageError("wrong").declarations == nil)
        let other = CommandLineParser(program: "bell", usage: "", summary: "Rings.")
        #expect(try other.parse(["a", CommandLineParser.declarationsRequest]) == ["a", ""], "it ends a text for C")
    }

    @Test("Flags, strings and lists are parsed in long and short form, before and behind arguments")
    func options() throws {
        #expect(try parse(["--flag"]).flag)
        #expect(try parse(["-f"]).flag)
        #expect(try parse(["--text", "a"]).text == "a")
        #expect(try parse(["--text=a"]).text == "a")
        #expect(try parse(["-t", "a"]).text == "a")
        #expect(try parse(["--text="]).text == "")
        #expect(try parse(["--text", ""]).text == "")
        #expect(try parse(["--text", "a", "--text", "b"]).text == "b")
        #expect(try parse(["-ft", "a"]) == Parsed(flag: true, text: "a"))
        #expect(try parse(["-l", "a", "--list", "b", "--list=c"]).list == ["a", "b", "c"])
        #expect(try parse(["--text", "--flag"]) == Parsed(text: "--flag"))
        #expect(
            try parse(["one", "--flag", "two", "-t", "a", "three"])
                == Parsed(
                    flag: true, text: "a", rest: ["one", "two", "three"]))
        #expect(try parse([""]).rest == [""])
        #expect(try parse(["-"]).rest == ["-"])
    }

    @Test("Arguments in any script are parsed, independent of the locale of the process")
    func unicode() throws {
        let text = "Größe 🔔 e\u{301} \u{1B}"
        #expect(
            try parse(["--text", text, "-l", text, text]) == Parsed(text: text, list: [text], rest: [text]))
    }

    @Test("10,000 arguments, and 10,000 values of one list option, are parsed")
    func many() throws {
        let names = (0..<10_000).map { "name\($0)" }
        #expect(try parse(names).rest == names)
        #expect(try parse(names.flatMap { ["-l", $0] }).list == names)
    }

    @Test(
        "An unknown option, a missing value or a surplus value is a usage error that names the option",
        arguments: [
            (["--nonsense"], "--nonsense"), (["-x"], "-x"), (["--text"], "--text"), (["-t"], "-t"),
            (["one", "--list"], "--list"),
            (["--flag=1"], "--flag takes no value; '1' was given"), (["--nonsense=1"], "--nonsense"),
            (["--flag="], "--flag takes no value"), (["--lits", "a"], "did you mean '--list'?"), (["-fx"], "-x"),
            (["--größe"], "--größe"),
        ])
    func usageErrors(arguments: [String], name: String) {
        #expect {
            try parse(arguments)
        } throws: { error in
            (error as? CommandLineParser.UsageError)?.description.contains(name) == true
        }
    }

    @Test(
        "All arguments behind -- are positional, including another --",
        arguments: [
            (["--"], []), (["--", "--flag"], ["--flag"]), (["one", "--", "--flag"], ["one", "--flag"]),
            (["one", "--", "two"], ["one", "two"]), (["--", "--"], ["--"]), (["one", "--", "--"], ["one", "--"]),
            (["--", "--", "one"], ["--", "one"]), (["--", "one", "--"], ["one", "--"]), (["--", "-x"], ["-x"]),
        ])
    func doubleDash(arguments: [String], rest: [String]) throws {
        #expect(try parse(arguments) == Parsed(rest: rest))
        #expect(try parse(["--flag"] + arguments) == Parsed(flag: true, rest: rest))
    }

    @Test(
        "stopsAtFirstArgument leaves the first argument and all that follow unparsed",
        arguments: [
            ([], Parsed()), (["--flag"], Parsed(flag: true)), (["post", "--flag"], Parsed(rest: ["post", "--flag"])),
            (["--flag", "post", "--nonsense"], Parsed(flag: true, rest: ["post", "--nonsense"])),
            (["-t", "a", "post", "-t"], Parsed(text: "a", rest: ["post", "-t"])),
            (["post", "--", "--flag"], Parsed(rest: ["post", "--", "--flag"])),
            (["--", "post", "--flag"], Parsed(rest: ["post", "--flag"])),
        ])
    private func stops(arguments: [String], parsed: Parsed) throws {
        #expect(try parse(arguments, stopsAtFirstArgument: true) == parsed)
    }
}
