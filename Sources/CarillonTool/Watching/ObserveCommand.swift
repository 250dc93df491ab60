// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// `carillon observe [NAME ...]`
enum ObserveCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon observe", usage: "[NAME ...]",
            summary: "Prints the notifications of these names, or of any name, as they arrive.",
            description: """
                Standard error says when observing has begun, what was lost, and when the service goes and comes; with
                --json standard output does, too, in objects with the member "event". Without --count it goes on until
                it is interrupted. The exit status is 4 when notifications were lost.

                COMMAND is run by the shell, once for each, in their order: with CARILLON_NAME, CARILLON_OBJECT,
                CARILLON_USER_INFO, CARILLON_INFO_key, CARILLON_TIME, CARILLON_POSTER, CARILLON_SERIAL and
                CARILLON_SEQUENCE in its environment, and the JSON object on its standard input. With --exec or --popup
                nothing is printed, unless --json, --format or --long asks for it.
                """)
        let read = try WatchArguments.read(arguments, by: parser) { parser in
            (
                behavior: parser.string(
                    "suspension-behavior", placeholder: "BEHAVIOR",
                    help: "What becomes of notifications while it is suspended: "
                        + ChoiceArguments.names(SuspensionBehavior.self)),
                mode: parser.string(
                    "run-loop-mode", short: "m", placeholder: "MODE",
                    help: "How urgent they are to it: \(ChoiceArguments.names(RunLoopMode.self))"),
                retained: parser.flag(
                    "retained", help: "First print the values that are kept, as 'carillon get' does"),
                interval: parser.string(
                    "interval", placeholder: "TIME",
                    help: "Of each name and object at most one in TIME, the newest"),
                command: parser.string("exec", short: "e", placeholder: "COMMAND", help: "Run COMMAND for each"),
                popup: parser.flag("popup", help: "Show each on the desktop"),
                record: parser.string(
                    "record", placeholder: "FILE", help: "Append them to FILE too, for 'carillon replay'")
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
        if command?.isEmpty == true { throw UsageError("--exec: '' is no command") }
        arguments.warnOfPatterns()
        let watch = Watch(
            arguments.scope(options, wanted: arguments.wanted, details: command == nil && path == nil ? [] : [.time]),
            word: "observing")
        return try CommandSession.run { session throws(UsageError) in
            let recorder = try path.map { path throws(UsageError) in try Recorder(path, on: session) }
            if let seconds = arguments.seconds { session.after(seconds) { watch.end(.timedOut) } }
            watch.start(on: session) { becameIdle in
                var outputs: [any NotificationOutput] = recorder.map { [$0] } ?? []
                if arguments.hasFormat || (command == nil && !hasPopups) {
                    outputs.append(Printer(arguments.format, on: session))
                }
                if let command { outputs.append(CommandRunner(command, on: session, becameIdle: becameIdle)) }
                if hasPopups { outputs.append(Popups(on: session, becameIdle: becameIdle)) }
                return outputs
            }
        }
    }
}
