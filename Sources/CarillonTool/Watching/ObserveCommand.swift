// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// `carillon observe [NAME ...]`: registers observers, and passes arriving notifications to standard output, a file, a
/// command or the desktop. It reads the arguments; ``Observation`` does the work.
enum ObserveCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon observe", usage: "[NAME ...]",
            summary: "Prints the notifications of these names, or of any name, as they arrive.",
            description: """
                Standard error reports the start, losses, and the end and return of the service. With --json standard
                output reports them as well, as objects with the member "event". Without --count it runs until it is
                interrupted. The exit status is 4 if notifications were lost.

                The shell runs COMMAND once for each, in their order, with CARILLON_NAME, CARILLON_OBJECT,
                CARILLON_USER_INFO, CARILLON_INFO_key, CARILLON_TIME, CARILLON_POSTER, CARILLON_SERIAL and
                CARILLON_SEQUENCE in its environment, and the JSON object on its standard input. With --exec or --popup
                nothing is printed, unless --json, --format or --long asks for it.
                """)
        let read = try ObservationArguments.read(arguments, by: parser) { parser in
            (
                behavior: parser.string(
                    "suspension-behavior", placeholder: "BEHAVIOR",
                    help: "The treatment of notifications while this process is suspended: "
                        + ChoiceArguments.names(SuspensionBehavior.self)),
                mode: parser.string(
                    "run-loop-mode", short: "m", placeholder: "MODE",
                    help: "Their priority when the service is busy: \(ChoiceArguments.names(RunLoopMode.self))"),
                retained: parser.flag(
                    "retained", help: "First print the retained values, as 'carillon get' does"),
                interval: parser.string(
                    "interval", placeholder: "TIME",
                    help: "Print at most one of each name and object in TIME, the newest"),
                command: parser.string("exec", short: "e", placeholder: "COMMAND", help: "Run COMMAND for each"),
                popup: parser.flag("popup", help: "Show each on the desktop"),
                record: parser.string(
                    "record", placeholder: "FILE", help: "Also append them to FILE, for 'carillon replay'")
            )
        }
        guard let (arguments, own) = read else { return Output.writeVersion() }
        var options = ObserverOptions()
        options.suspensionBehavior =
            try ChoiceArguments.one(parser.value(own.behavior), "--suspension-behavior") ?? options.suspensionBehavior
        options.runLoopMode = try ChoiceArguments.one(parser.value(own.mode), "--run-loop-mode") ?? options.runLoopMode
        options.wantsRetained = parser.value(own.retained)
        if let seconds = try NumberArguments.seconds(parser.value(own.interval), "--interval") {
            options.minimumInterval = UInt32((seconds * 1000).rounded(.up))
        }
        let (command, path, hasPopups) = (
            parser.value(own.command), parser.value(own.record), parser.value(own.popup)
        )
        if command?.isEmpty == true { throw UsageError("--exec: '' is not a command") }
        arguments.warnOfPatterns()
        // A recording and a command get the time of each post, which the service sends only if that detail is
        // requested.
        let observation = Observation(
            arguments.scope(options, wanted: arguments.wanted, details: command == nil && path == nil ? [] : [.time]),
            activity: "observing")
        return try CommandSession.run { session throws(UsageError) in
            let recorder = try path.map { path throws(UsageError) in try Recorder(path, on: session) }
            if let seconds = arguments.seconds { session.after(seconds) { observation.end(.timedOut) } }
            // Each option adds an output. Without one of them the notifications are printed.
            observation.start(on: session) { onIdle in
                var outputs: [any NotificationOutput] = recorder.map { [$0] } ?? []
                if arguments.hasFormat || (command == nil && !hasPopups) {
                    outputs.append(Printer(arguments.format, on: session))
                }
                if let command { outputs.append(CommandRunner(command, onIdle: onIdle)) }
                if hasPopups { outputs.append(Popups(on: session, onIdle: onIdle)) }
                return outputs
            }
        }
    }
}
