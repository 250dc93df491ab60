import NotificationCore
import TestSupport
import Testing

/// What the completion offers, asked of bash, is what `--help` shows.
@Suite("Completion in bash", .timeLimit(.minutes(20)))
struct CompletionTests {
    @Test("It offers every command, and no other")
    func commands() throws {
        let help = try HelpText(of: "carillon")
        try #require(!help.commands.isEmpty)
        #expect(try offered("").sorted() == (help.commands + help.longOptions.map { "--\($0)" }).sorted())
    }

    @Test("It offers every option of every command, and no other")
    func options() throws {
        for command in try HelpText(of: "carillon").commands {
            let help = try HelpText(of: "carillon", command: command)
            let options = help.longOptions.map { "--\($0)" }.sorted()
            #expect(try offered(command, "-").sorted() == options, "\(command)")
            for option in help.options {
                let next = try offered(command, "--\(option.long)", "-").sorted()
                #expect(next == (option.takesValue ? [] : options), "behind \(command) \(option)")
            }
        }
    }

    @Test(
        "It offers the values that options choose from",
        arguments: [
            ("post", "--posting-style", PostingStyle.allCases.map(\.rawValue)),
            ("post", "--coalesce-on", CoalescingKey.allCases.map(\.rawValue) + ["name,object"]),
            ("observe", "--suspension-behavior", SuspensionBehavior.allCases.map(\.rawValue)),
            ("observe", "--run-loop-mode", RunLoopMode.allCases.map(\.rawValue)),
        ])
    func values(command: String, option: String, values: [String]) throws {
        #expect(try offered(command, option, "").sorted() == values.sorted())
    }

    /// What is offered for the last word.
    private func offered(_ words: String...) throws -> [String] {
        let script = """
            source "$1"
            COMP_WORDS=(carillon "${@:2}")
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _carillon
            ((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}"
            """
        let file = Executables.packageRoot + "/data/completions/carillon"
        let result = try Command.run("bash", ["--norc", "-c", script, "bash", file] + words)
        try #require(result.exitCode == 0 && result.standardError.isEmpty, "\(result)")
        return result.standardOutput.split(separator: "\n").map(String.init)
    }
}
