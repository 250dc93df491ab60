// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The program `carillon COMMAND …`: it finds the command, and runs it with the other arguments.
@main
struct CarillonTool {
    /// Runs a command with its arguments, and returns the exit code of the process.
    typealias Run = @Sendable ([String]) throws(UsageError) -> ExitCode

    struct Command: Sendable {
        let name: String
        /// One line for the list of commands.
        let help: String
        let run: Run
    }

    /// The commands, in the order of the help.
    static let commands = [
        Command(name: "post", help: "Post a notification", run: PostCommand.run),
        Command(name: "observe", help: "Print the notifications that arrive", run: ObserveCommand.run),
        Command(name: "wait", help: "Wait for a notification, which a command may cause", run: WaitCommand.run),
        Command(name: "monitor", help: "Print all posts, without counting as a receiver", run: MonitorCommand.run),
        Command(name: "replay", help: "Post recorded notifications again", run: ReplayCommand.run),
        Command(name: "status", help: "Show the state and the counters of the service", run: StatusCommand.run),
        Command(name: "top", help: "Show a live display of state and counters", run: TopCommand.run),
        Command(name: "clients", help: "List the programs that use the service", run: ListCommand.runClients),
        Command(name: "observers", help: "List the observers of programs", run: ListCommand.runObservers),
        Command(name: "get", help: "Print the retained values of a name", run: ValuesCommand.runGet),
        Command(name: "forget", help: "Remove the retained values of a name", run: ValuesCommand.runForget),
        Command(name: "retained", help: "List all retained values", run: ValuesCommand.runRetained),
        Command(name: "why", help: "Explain why a program does not receive a notification", run: WhyCommand.run),
        Command(name: "suspend", help: "Suspend a program, to test it", run: OverrideCommand.runSuspend),
        Command(name: "resume", help: "Make a program count as active, to test it", run: OverrideCommand.runResume),
        Command(name: "follow", help: "Undo suspend and resume", run: OverrideCommand.runFollow),
        Command(name: "bridge", help: "Inspect the bridge to other machines", run: BridgeCommand.run),
        Command(name: "check", help: "Check configuration files", run: CheckCommand.run),
        Command(name: "reload", help: "Make the service read its configuration again", run: ReloadCommand.run),
        Command(name: "help", help: "Show the help of a command", run: HelpCommand.run),
    ]

    /// Returns the command of this name; nil if there is none.
    static func command(_ name: String) -> Run? {
        // Only the completion scripts of shells call it, so the help does not list it.
        if name == "complete" { return CompleteCommand.run }
        return commands.first { $0.name == name }?.run
    }

    static func main() {
        do throws(UsageError) {
            let arguments = try CommandLineParser.processArguments()
            do throws(UsageError) {
                exit(try run(arguments).rawValue)
            } catch {
                let name = arguments.first.flatMap { command($0) == nil ? nil : $0 }
                fail(error, help: name.map { "carillon \($0) --help" })
            }
        } catch {
            fail(error, help: nil)
        }
    }

    /// Reports wrong arguments, and ends the process.
    ///
    /// - Parameter help: the command that shows the help; nil for the general one.
    private static func fail(_ error: UsageError, help: String?) -> Never {
        printError("carillon: \(error)\nTry '\(help ?? "carillon --help")'.")
        exit(ExitCode.usage.rawValue)
    }

    /// Runs the program with its arguments, apart from the program's name.
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let width = commands.map(\.name.count).max() ?? 0
        let list = commands.map { command in
            "  \(command.name)\(String(repeating: " ", count: width - command.name.count))  \(command.help)"
        }
        let parser = CommandLineParser(
            program: "carillon", usage: "COMMAND ...",
            summary: "Posts and observes distributed notifications, and inspects the service.",
            description: """
                Commands:
                \(list.joined(separator: "\n"))

                'carillon help COMMAND' shows the help of a command.

                Exit status: 0 done, 1 wrong usage or refused, 2 no bus or no service, 3 timed out, 4 notifications
                were lost, 5 standard output can't be written, 6 there is no such value or client, 7 a command of
                --exec failed.
                """,
            stopsAtFirstArgument: true)
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        guard let name = rest.first else {
            printError(parser.help)
            return .usage
        }
        guard let run = command(name) else { throw unknown(name) }
        return try run(Array(rest.dropFirst()))
    }

    /// Returns the error for an unknown command, with the most similar known one.
    static func unknown(_ name: String) -> UsageError {
        let closest = Spelling.closest(to: name, among: commands.map(\.name))
        return UsageError("there is no command '\(name)'" + (closest.map { "; did you mean '\($0)'?" } ?? ""))
    }
}
