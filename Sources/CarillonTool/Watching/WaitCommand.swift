// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// `carillon wait NAME [-- COMMAND ...]`: waits for a notification, prints it, and ends.
///
/// With a COMMAND it registers the observer first, and starts the COMMAND after the service has confirmed the
/// registration. A failure of the COMMAND ends the wait with its exit status, outside of ``ExitCode``.
enum WaitCommand {
    /// The exit status for a command that could not be started, as in `env` and shells.
    private static let notRun: Int32 = 127

    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon wait", usage: "NAME [-- COMMAND ...]",
            summary: "Waits for a notification, prints it, and ends.",
            description: """
                With a COMMAND it registers first, then runs the COMMAND, so it never misses a notification that the
                COMMAND causes. A COMMAND that fails before the notification has arrived ends the wait with its exit
                status. A COMMAND that still runs then continues. The exit status is 3 after --timeout.
                """)
        // The words behind the first `--` belong to the COMMAND, and are not parsed.
        let separator = arguments.firstIndex(of: "--")
        let command = separator.map { Array(arguments[($0 + 1)...]) } ?? []
        let read = try ObservationArguments.read(Array(arguments[..<(separator ?? arguments.endIndex)]), by: parser) {
            parser in
            (
                retained: parser.flag(
                    "retained", help: "A retained value counts: end at once if there is one"),
                isQuiet: parser.flag("quiet", short: "q", help: "Print nothing")
            )
        }
        guard let (arguments, own) = read else { return Output.writeVersion() }
        if separator != nil, command.first?.isEmpty ?? true { throw UsageError("wait needs a COMMAND after '--'") }
        if arguments.names.isEmpty, !arguments.hasGlob { throw UsageError("wait needs a NAME, or --glob") }
        if arguments.names.count > 1 {
            throw UsageError("wait takes one NAME; the COMMAND follows '--'")
        }
        arguments.warnOfPatterns()
        let observation = Observation(
            arguments.scope(
                ObserverOptions(wantsRetained: parser.value(own.retained)), wanted: arguments.wanted ?? 1),
            activity: "waiting for")
        let isQuiet = parser.value(own.isQuiet)
        var child: ChildProgram?
        var childStatus: Int32?
        let code = CommandSession.run { session in
            if let seconds = arguments.seconds {
                session.after(seconds) {
                    printError("carillon: it did not arrive in time")
                    observation.end(.timedOut)
                }
            }
            observation.start(on: session) { _ in
                isQuiet ? [] : [Printer(arguments.format, on: session)]
            } begun: {
                // The observer is registered, so the COMMAND can start. A COMMAND that fails ends the wait.
                guard !command.isEmpty else { return }
                do throws(ChildProgram.Failure) {
                    child = try ChildProgram(command, on: .default) { ending in
                        guard ending != .exited(0) else { return }
                        printError("carillon: \(command[0]) ended with status \(ending.status)")
                        childStatus = ending.status
                        session.finish(.commandFailed)
                    }
                } catch {
                    printError("carillon: \(error)")
                    childStatus = notRun
                    session.finish(.commandFailed)
                }
            }
        }
        withExtendedLifetime(child) {}
        if code == .commandFailed, let childStatus { exit(childStatus) }
        return code
    }
}
