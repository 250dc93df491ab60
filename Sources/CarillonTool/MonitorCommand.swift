import MainLoop
import NotificationCore

/// `carillon monitor [NAME ...]`
enum MonitorCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon monitor", usage: "[NAME ...]",
            summary: "Prints the posts of these names, or all, whoever receives them, as they are made.",
            description: """
                It counts nowhere: a post that nobody observes is shown, and its poster is told of no receiver. A line is
                the poster, and what 'carillon observe' prints. What was posted over channels is shown, too. Standard error,
                the objects with the member "event", and the exit status are those of 'carillon observe'.
                """)
        guard let arguments = try WatchArguments.read(arguments, by: parser) else { return Output.writeVersion() }
        return arguments.common.watch(ObserverOptions(isMonitor: true), format: .monitor, word: "monitoring")
    }
}
