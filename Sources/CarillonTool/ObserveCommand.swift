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
        let object = parser.string("object", short: "o", placeholder: "OBJECT", help: "Only those about OBJECT")
        let behavior = parser.string(
            "suspension-behavior", short: "b", placeholder: "BEHAVIOR",
            help:
                "What becomes of notifications while it is suspended: \(ChoiceArguments.names(SuspensionBehavior.self))"
        )
        let mode = parser.string(
            "run-loop-mode", short: "m", placeholder: "MODE",
            help: "How urgent they are to it: \(ChoiceArguments.names(RunLoopMode.self))")
        let json = parser.flag("json", short: "j", help: "Print a JSON object a line")
        let count = parser.string("count", short: "n", placeholder: "N", help: "End after N notifications")
        let timeout = parser.string(
            "timeout", short: "t", placeholder: "SECONDS", help: "End after SECONDS, with status 3")
        let version = parser.flag("version", help: "Show the version and exit")
        let names = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }

        let wanted = try positive(parser.value(count), "--count") { Int($0) }
        let seconds = try positive(parser.value(timeout), "--timeout") { Double($0) }
        if let name = names.first(where: \.isEmpty) { throw UsageError("'\(name)' is no name of a notification") }
        let about = parser.value(object) ?? ""
        var options = ObserverOptions()
        options.suspensionBehavior =
            try ChoiceArguments.one(parser.value(behavior), "--suspension-behavior") ?? options.suspensionBehavior
        options.runLoopMode = try ChoiceArguments.one(parser.value(mode), "--run-loop-mode") ?? options.runLoopMode
        let watch = Watch(
            names: names, object: about, options: options, wanted: wanted,
            format: parser.value(json) ? .json : .people, word: "observing")
        return CommandSession.run { session in
            if let seconds { session.finish(.timedOut, afterSeconds: seconds) }
            watch.start(on: session)
        }
    }

    static func positive<Number: Comparable & ExpressibleByIntegerLiteral>(
        _ text: String?, _ option: String, _ convert: (String) -> Number?
    ) throws(UsageError) -> Number? {
        guard let text else { return nil }
        guard let number = convert(text), number > 0, number < 4_000_000 else {
            throw UsageError("\(option): '\(text)' is not a number from 1 to 4000000")
        }
        return number
    }
}
