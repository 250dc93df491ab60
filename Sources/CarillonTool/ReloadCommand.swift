// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonWire

/// `carillon reload`: makes the service read its configuration again (E1, E9). The service's reply is an error if a
/// file has a mistake.
enum ReloadCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon reload", usage: "", summary: "Makes the service read its configuration again.",
            description: """
                With a mistake in a file nothing changes, standard error shows its place, and the exit status is 1. A
                service that does not run is not started, because it reads its files at its start, and the exit status
                is 2. 'carillon bridge reload' is for the bridge.
                """)
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        if let extra = rest.first { throw UsageError("reload takes no argument '\(extra)'") }
        return CommandSession.run(startsService: false) { session in
            session.ask(ReloadConfiguration()) { _ in session.finish(.done) }
        }
    }
}
