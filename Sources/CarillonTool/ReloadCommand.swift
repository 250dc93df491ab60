// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonWire

/// `carillon reload`: has the service read its configuration again (E1, E9).
enum ReloadCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon reload", usage: "", summary: "Has the service read its configuration again.",
            description: """
                With a mistake in a file everything stays as it was, standard error says where it is, and the exit status
                is 1. A service that does not run is not started; it reads its files when it starts. The exit status is 2
                then. 'carillon bridge reload' is for the bridge.
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
