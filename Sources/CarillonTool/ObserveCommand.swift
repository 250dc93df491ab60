import MainLoop
import NotificationCore

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
                """)
        let read = try WatchArguments.read(arguments, by: parser) { parser in
            (
                behavior: parser.string(
                    "suspension-behavior", short: "b", placeholder: "BEHAVIOR",
                    help: "What becomes of notifications while it is suspended: "
                        + ChoiceArguments.names(SuspensionBehavior.self)),
                mode: parser.string(
                    "run-loop-mode", short: "m", placeholder: "MODE",
                    help: "How urgent they are to it: \(ChoiceArguments.names(RunLoopMode.self))"),
                retained: parser.flag(
                    "retained", short: "r", help: "First print the values that are kept, as 'carillon get' does")
            )
        }
        guard let (arguments, own) = read else { return Output.writeVersion() }
        var options = ObserverOptions()
        options.suspensionBehavior =
            try ChoiceArguments.one(parser.value(own.behavior), "--suspension-behavior") ?? options.suspensionBehavior
        options.runLoopMode = try ChoiceArguments.one(parser.value(own.mode), "--run-loop-mode") ?? options.runLoopMode
        options.wantsRetained = parser.value(own.retained)
        return arguments.watch(options, format: .people, word: "observing")
    }
}
