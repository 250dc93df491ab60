// SPDX-License-Identifier: Apache-2.0
import MainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// `carillon COMMAND …`
@main
struct CarillonTool {
    static func command(_ name: String) -> (([String]) throws(UsageError) -> ExitCode)? {
        switch name {
        case "post": PostCommand.run
        case "observe": ObserveCommand.run
        case "wait": WaitCommand.run
        case "monitor": MonitorCommand.run
        case "replay": ReplayCommand.run
        case "status": StatusCommand.run
        case "clients": ListCommand.runClients
        case "observers": ListCommand.runObservers
        case "get": ValuesCommand.runGet
        case "forget": ValuesCommand.runForget
        case "retained": ValuesCommand.runRetained
        case "top": TopCommand.run
        case "why": WhyCommand.run
        case "bridge": BridgeCommand.run
        case "suspend": OverrideCommand.runSuspend
        case "resume": OverrideCommand.runResume
        case "follow": OverrideCommand.runFollow
        // For the shells, and so not in the help.
        case "complete": CompleteCommand.run
        default: nil
        }
    }

    static func main() {
        do throws(UsageError) {
            exit(try run(try CommandLineParser.processArguments()).rawValue)
        } catch {
            printError("carillon: \(error)\nTry 'carillon --help'.")
            exit(ExitCode.usage.rawValue)
        }
    }

    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon", usage: "COMMAND ...",
            summary: "Posts and observes distributed notifications, and looks into the service.",
            description: """
                Commands:
                  post       Post a notification
                  observe    Print the notifications that arrive
                  wait       Wait for a notification, which a command may cause
                  monitor    Print all that is posted, without counting as a receiver
                  replay     Post again what was recorded
                  status     Show what the service is doing
                  top        Show it again and again, on the whole screen
                  clients    List the programs that it knows
                  observers  List their observers
                  get        Print the values that are kept of a name
                  forget     Remove them
                  retained   List all values that are kept
                  why        Tell why a program does not get something
                  suspend    Suspend a program, to test it
                  resume     Have a program count as active, to test it
                  follow     Take either back
                  bridge     Look at the bridge to other machines

                'carillon COMMAND --help' tells more.

                Exit status: 0 done, 1 wrong usage or refused, 2 no bus or no service, 3 timed out, 4 notifications
                were lost, 5 standard output can't be written, 6 there is no such value or client, 7 a command of
                --exec failed.
                """,
            stopsAtFirstArgument: true)
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        guard let name = rest.first else { throw UsageError("no command given") }
        guard let run = command(name) else { throw UsageError("there is no command '\(name)'") }
        return try run(Array(rest.dropFirst()))
    }
}
