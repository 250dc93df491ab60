// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonWire

/// `carillon suspend CLIENT`, `carillon resume CLIENT` and `carillon follow CLIENT`: set and revoke an override of a
/// client's suspension state in the service, for tests of applications (B3).
enum OverrideCommand {
    static func runSuspend(_ arguments: [String]) throws(UsageError) -> ExitCode {
        try run(
            arguments, "suspend", true, "Suspends programs, overriding their own state and the desktop's activity.",
            done: "suspended")
    }

    static func runResume(_ arguments: [String]) throws(UsageError) -> ExitCode {
        try run(
            arguments, "resume", false,
            "Makes programs count as active, overriding their own state and the desktop's activity.",
            done: "resumed")
    }

    static func runFollow(_ arguments: [String]) throws(UsageError) -> ExitCode {
        try run(
            arguments, "follow", nil, "Revokes 'carillon suspend' and 'carillon resume' of programs.",
            done: "override revoked")
    }

    /// Runs one of the three commands.
    ///
    /// - Parameters:
    ///   - command: the name of the command.
    ///   - isSuspended: the override; nil revokes it.
    ///   - summary: the first line of the help.
    ///   - done: the first word of the output for each client.
    private static func run(
        _ arguments: [String], _ command: String, _ isSuspended: Bool?, _ summary: String, done: String
    ) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon \(command)", usage: "CLIENT", summary: summary,
            description: """
                CLIENT is a unique name such as :1.42, a process id, the name of a program or the id of an application;
                the command applies to all matching clients. It holds until 'carillon follow' revokes it, or the program
                leaves the bus. The exit status is 6 if there is no such client.
                """)
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        guard let text = rest.first else { throw UsageError("\(command) needs a CLIENT") }
        if rest.count > 1 { throw UsageError("\(command) takes one CLIENT") }
        let chosen = try ClientSelector(text)
        return CommandSession.run(startsService: false) { session in
            chosen.ask({ OverrideSuspension(of: $0.name.rawValue, isSuspended) }, on: session) { client, _ in
                session.print("\(done)  \(client.name)  \(client.process)  \(client.processID)")
            }
        }
    }
}
