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
        let object = parser.string("object", short: "o", placeholder: "OBJECT", help: "Only those about OBJECT")
        let json = parser.flag("json", short: "j", help: "Print a JSON object a line")
        let count = parser.string("count", short: "n", placeholder: "N", help: "End after N notifications")
        let timeout = parser.string(
            "timeout", short: "t", placeholder: "SECONDS", help: "End after SECONDS, with status 3")
        let version = parser.flag("version", help: "Show the version and exit")
        let names = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }

        let wanted = try ObserveCommand.positive(parser.value(count), "--count") { Int($0) }
        let seconds = try ObserveCommand.positive(parser.value(timeout), "--timeout") { Double($0) }
        if let name = names.first(where: \.isEmpty) { throw UsageError("'\(name)' is no name of a notification") }
        let watch = Watch(
            names: names, object: parser.value(object) ?? "", options: ObserverOptions(isMonitor: true), wanted: wanted,
            format: parser.value(json) ? .json : .monitor, word: "monitoring")
        return CommandSession.run { session in
            if let seconds { session.finish(.timedOut, afterSeconds: seconds) }
            watch.start(on: session)
        }
    }
}
