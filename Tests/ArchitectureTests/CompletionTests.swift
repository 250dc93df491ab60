// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonTestSupport
import Testing

/// What the completion offers, asked of the function for bash, is what `--help` shows. Shells on a terminal are asked by
/// `ShellCompletionTests`.
@Suite("Completion in bash", .limited)
struct CompletionTests {
    @Test("Completion offers exactly the commands that the help lists")
    func commands() throws {
        let help = try HelpText(of: "carillon")
        try #require(!help.commands.isEmpty)
        #expect(try offered("").sorted() == help.commands.sorted())
        #expect(try offered("-").sorted() == help.longOptions.map { "--\($0)" }.sorted())
        #expect(try offered("forg") == ["forget"] && offered("nonsense").isEmpty && offered("nonsense", "").isEmpty)
    }

    @Test("Completion offers exactly the options that the help of each command lists")
    func options() throws {
        for command in try HelpText(of: "carillon").commands {
            let help = try HelpText(of: "carillon", command: command)
            let options = help.longOptions.map { "--\($0)" }.sorted()
            #expect(try offered(command, "-").sorted() == options, "\(command)")
            for option in help.options {
                let forms = ["--\(option.long)"] + (option.short.map { ["-\($0)"] } ?? [])
                for form in forms {
                    let next = try offered(command, form, "--").sorted()
                    #expect(next == (option.takesValue ? [] : options), "behind \(command) \(option)")
                }
            }
            #expect(try offered(command, "--", "--").isEmpty, "\(command): there are no options behind --")
        }
    }

    @Test(
        "Completion offers the values of options with fixed choices",
        arguments: [
            ("post", "--posting-style", PostingStyle.allCases.map(\.rawValue)),
            ("post", "--coalesce-on", CoalescingKey.allCases.map(\.rawValue)),
            ("post", "-sx=1 -ic", ["name", "object"]),
            ("post", "-c", ["name", "object"]), ("status", "--color", ["auto", "always", "never"]),
            ("top", "--view", ["clients", "values", "limits"]),
            ("observe", "--suspension-behavior", SuspensionBehavior.allCases.map(\.rawValue)),
            ("observe", "--run-loop-mode", RunLoopMode.allCases.map(\.rawValue)),
        ])
    func values(command: String, option: String, values: [String]) throws {
        let words = [command] + option.split(separator: " ").map(String.init)
        #expect(try offered(words + [""]).sorted() == values.sorted())
        guard option.hasPrefix("--") else { return }
        // bash replaces what is behind the equals sign.
        #expect(try offered([command, "\(option)="]).sorted() == values.sorted())
        let value = try #require(values.last)
        #expect(try offered([command, option, String(value.dropLast())]) == [value])
    }

    @Test("Completion of a comma-separated list offers only the values that the list lacks")
    func several() throws {
        #expect(try offered("post", "--coalesce-on", "name,") == ["name,object"])
        #expect(try offered("post", "--coalesce-on", "name,object,").isEmpty)
    }

    @Test("Completion offers values for every option whose help lists its values")
    func namedChoices() throws {
        for command in try HelpText(of: "carillon").commands {
            for option in try HelpText(of: "carillon", command: command).options where option.takesValue {
                guard option.help.contains(/: [a-z-]+(?:, [a-z-]+)+/) else { continue }
                #expect(try !offered(command, "--\(option.long)", "").isEmpty, "\(command) \(option)")
            }
        }
    }

    private func offered(_ words: String...) throws -> [String] { try offered(words) }

    /// What is offered for the last word.
    private func offered(_ words: [String]) throws -> [String] {
        // As bash parts them at COMP_WORDBREAKS.
        let script = """
            source "$1"
            COMP_LINE="$2 ${*:3}"
            COMP_WORDS=("$2")
            for word in "${@:3}"; do
                case $word in
                    *=) COMP_WORDS+=("${word%=}" =) ;;
                    *=*) COMP_WORDS+=("${word%%=*}" = "${word#*=}") ;;
                    *) COMP_WORDS+=("$word") ;;
                esac
            done
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _carillon
            ((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}"
            """
        let file = Executables.packageRoot + "/data/completions/carillon"
        let command = try Executables.path(of: "carillon")
        let result = try Command.run(
            "bash", ["--norc", "-c", script, "bash", file, command] + words,
            environment: ["PATH": "/usr/bin:/bin", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent/bus"])
        try #require(result.exitCode == 0 && result.standardError.isEmpty, "\(result)")
        return result.standardOutput.split(separator: "\n").map(String.init)
    }
}
