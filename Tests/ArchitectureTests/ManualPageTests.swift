// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonTestSupport
import Testing

/// The manual pages say what the programs say of themselves with `--help`, and what is in their source.
@Suite("Manual pages", .limited)
struct ManualPageTests {
    /// A page in mdoc(7).
    private struct Page {
        let text: String

        init(_ name: String) throws { text = try Document("data/man/\(name)").text }

        /// What stands under the headings that begin so, up to the next of that kind.
        func section(_ heading: String) throws -> String {
            let kind = heading.prefix(3)
            let start = try #require(text.firstRange(of: "\n\(heading)\n"), "there is no \(heading)")
            let rest = text[start.upperBound...]
            let next = rest.split(separator: "\n", omittingEmptySubsequences: false).first {
                $0.hasPrefix(kind) || $0.hasPrefix(".Sh")
            }
            return String(rest[..<(next.map { $0.startIndex } ?? rest.endIndex)])
        }
    }

    /// `Fl -long`, also where `Fl s ,` comes before it.
    private func options(in text: some StringProtocol) -> Set<String> {
        Set(String(text).matches(of: /\bFl (?:\w , (?:Fl )?)?-([a-z-]+)/).map { String($0.1) })
    }

    private static let help: Set<String> = ["help", "version"]

    // MARK: carillon

    @Test("carillon(1) has exactly the commands of the help")
    func commands() throws {
        let page = try Page("carillon.1")
        let commands = try HelpText(of: "carillon").commands
        try #require(!commands.isEmpty)
        let sections = page.text.matches(of: /\n\.Ss carillon ([a-z]+)\n/).map { String($0.1) }
        #expect(sections == commands)
        #expect(try synopses(page).map(\.command) == commands)
    }

    @Test("carillon(1) has exactly the options that the help of each command lists")
    func options() throws {
        let page = try Page("carillon.1")
        let synopses = try synopses(page)
        for command in try HelpText(of: "carillon").commands {
            let help = try HelpText(of: "carillon", command: command)
            let long = help.longOptions.subtracting(Self.help)
            let synopsis = try #require(synopses.first { $0.command == command }, "\(command)")
            #expect(synopsis.options == long, "the synopsis of \(command)")
            let section = try page.section(".Ss carillon \(command)")
            #expect(options(in: section) == long, "the section of \(command)")
            for option in help.options where !Self.help.contains(option.long) {
                try check(option, in: section, of: command)
            }
        }
        let common = try page.section(".Sh DESCRIPTION")
        #expect(options(in: common.split(separator: "\n.Ss")[0]).isSuperset(of: Self.help))
    }

    /// The commands in the synopsis, with the options that it shows for each.
    private func synopses(_ page: Page) throws -> [(command: String, options: Set<String>)] {
        try page.section(".Sh SYNOPSIS").split(separator: ".Nm\n").compactMap { synopsis in
            synopsis.prefixMatch(of: /\.Cm ([a-z]+)\n/).map { (String($0.1), options(in: synopsis)) }
        }
    }

    /// An option has its short form before it where it has one, and its value behind it where it takes one.
    private func check(_ option: HelpText.Option, in section: String, of command: String) throws {
        let form = option.short.map { "Fl \($0) , Fl -\(option.long)" } ?? "Fl -\(option.long)"
        let line = section.split(separator: "\n").first {
            $0.firstRange(of: /\bFl -/.wordBoundaryKind(.simple)) != nil
                && ($0.hasSuffix(form) || $0.contains("\(form) "))
        }
        let found = try #require(line, "\(command) \(option) is not there as '\(form)'")
        if found.hasPrefix(".It") {
            #expect(found.contains(" Ar ") == option.takesValue, "\(command) \(option): \(found)")
        }
        if option.short == nil {
            #expect(section.firstMatch(of: try Regex("Fl \\w , Fl -\(option.long)\\b")) == nil, "\(command) \(option)")
        }
    }

    @Test("carillon(1) lists the values of options with fixed choices")
    func choices() throws {
        let page = try Page("carillon.1")
        let values = [
            "post": PostingStyle.allCases.map(\.rawValue) + CoalescingKey.allCases.map(\.rawValue),
            "observe": SuspensionBehavior.allCases.map(\.rawValue) + RunLoopMode.allCases.map(\.rawValue),
        ]
        for (command, values) in values {
            let words = try page.section(".Ss carillon \(command)").matches(of: /\.Cm (\S+)/).map { String($0.1) }
            for value in values { #expect(words.contains(value), "\(command): \(value)") }
        }
    }

    /// The programs that serve, with a folder of their own name.
    private static let services = ["carillond", "carillon-bridge"].filter(SourceFile.folders.contains)

    @Test("The manual page lists the exit statuses of the source", arguments: ["carillon"] + services)
    func exitCodes(program: String) throws {
        let folder = program == "carillon" ? "Sources/CarillonTool" : "Sources/\(program)"
        let source = try #require(
            try Document.all(in: folder, suffix: ".swift").first { $0.text.contains("enum ExitCode: Int32") },
            "no file in \(folder) has enum ExitCode: Int32")
        let cases = source.text.split(separator: "enum ExitCode: Int32")[1].prefix { $0 != "}" }
        let codes = cases.matches(of: /\bcase \w+ = ([0-9]+)/).compactMap { Int($0.1) }
        try #require(!codes.isEmpty)
        let listed = try Page("\(program).1").section(".Sh EXIT STATUS").matches(of: /\.It ([0-9]+)\n/).compactMap {
            Int($0.1)
        }
        #expect(listed == codes.sorted())
        #expect(Set(codes).isSuperset(of: try HelpText(of: program).exitCodes))
    }

    @Test("carillon(1) describes the JSON events of observe and their members")
    func events() throws {
        let source = try Document("Sources/CarillonTool/Watching/ObservationEvent.swift").text
        let events = source.matches(of: /\bobject\("([a-z-]+)"/).map { String($0.1) }
        try #require(!events.isEmpty)
        let section = try Page("carillon.1").section(".Ss carillon observe")
        #expect(section.matches(of: /\n\.It Li ([a-z-]+)\n/).map { String($0.1) } == events)
        let format = try Document("Sources/CarillonTool/Watching/NotificationFormat.swift").text
        for member in (source + format).matches(of: /\("([a-zA-Z]+)", [A-Z\w"]/) {
            #expect(section.contains(".Li \(member.1)"), "\(member.1)")
        }
    }

    // MARK: Programs that serve

    @Test("The manual page of a daemon has exactly the options of its help", arguments: services)
    func service(program: String) throws {
        let page = try Page("\(program).1")
        let help = try HelpText(of: program)
        try #require(!help.options.isEmpty)
        #expect(options(in: try page.section(".Sh SYNOPSIS")) == help.longOptions)
        let description = try page.section(".Sh DESCRIPTION")
        #expect(options(in: description) == help.longOptions)
        for option in help.options { try check(option, in: description, of: program) }
    }

    @Test("carillon-bridge(1) has every key of the sample file, in its group and with its default")
    func bridgeKeys() throws {
        let page = try Page("carillon-bridge.1")
        var values: [String: String] = [:]
        var keys: [String: [String]] = [:]
        var group = ""
        for line in try Document("data/bridge.conf").lines {
            if let match = line.wholeMatch(of: /\[(\w+)\]/) { group = String(match.1) }
            guard let match = line.wholeMatch(of: /#([a-z-]+)=(.*)/) else { continue }
            keys[group, default: []].append(String(match.1))
            values[String(match.1) + " of \(group)"] = String(match.2)
        }
        #expect(keys.keys.sorted() == ["Bridge", "Broker", "Limits"])
        for (group, keys) in keys {
            let items = try page.section(".Ss [\(group)]").split(separator: "\n.It Cm ").dropFirst()
            #expect(items.flatMap { $0.prefix { $0 != "\n" }.split(separator: " , ").map(String.init) } == keys)
            for item in items {
                let key = item.prefix { !$0.isWhitespace }
                let value = try #require(values["\(key) of \(group)"])
                #expect(value.isEmpty || item.dropFirst(key.count).contains(value), "\(key)")
            }
        }
    }

    // MARK: Version

    @Test("The program and its manual page have the version of meson.build", arguments: ["carillon"] + services)
    func version(program: String) throws {
        let declared = try #require(try Document("meson.build").text.firstMatch(of: /\n  version: '([^']+)'/)).1
        let result = try Command.run(try Executables.path(of: program), ["--version"])
        #expect(result.standardOutput == "\(program) \(declared)\n")
        #expect(try Page("\(program).1").text.contains("\n.Os Carillon \(declared)\n"))
    }
}
