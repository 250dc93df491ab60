import MainLoop
import NotificationCore

/// What the command lines of `carillon observe` and `carillon monitor` have in common.
struct WatchArguments {
    private let names: [String]
    private let object: String
    private let wanted: Int?
    private let seconds: Double?
    private let isJSON: Bool
    private let details: Details

    /// Declares the options, and reads them.
    ///
    /// - Parameter more: declares those of one command, which the help shows behind the object.
    /// - Returns: nil where only the version is wanted.
    static func read<More>(
        _ arguments: [String], by parser: CommandLineParser, declaring more: (CommandLineParser) -> More = { _ in }
    ) throws(UsageError) -> (common: WatchArguments, more: More)? {
        let object = parser.string("object", short: "o", placeholder: "OBJECT", help: "Only those about OBJECT")
        let more = more(parser)
        let json = parser.flag("json", short: "j", help: "Print a JSON object a line")
        let details = parser.flag(
            "details", help: "Tell who posted each, as the bus and the kernel verified it, and when")
        let count = parser.string("count", short: "n", placeholder: "N", help: "End after N notifications")
        let timeout = parser.string(
            "timeout", short: "t", placeholder: "SECONDS", help: "End after SECONDS, with status 3")
        let version = parser.flag("version", help: "Show the version and exit")
        let names = try parser.parse(arguments)
        if parser.value(version) { return nil }
        let wanted = try positive(parser.value(count), "--count") { Int($0) }
        let seconds = try positive(parser.value(timeout), "--timeout") { Double($0) }
        if let name = names.first(where: \.isEmpty) { throw UsageError("'\(name)' is no name of a notification") }
        let common = WatchArguments(
            names: names, object: parser.value(object) ?? "", wanted: wanted, seconds: seconds,
            isJSON: parser.value(json),
            details: parser.value(details) ? [.userID, .processID, .process, .application, .unit, .time] : [])
        return (common, more)
    }

    /// - Parameters:
    ///   - format: of a line for people.
    ///   - word: as standard error says what has begun.
    func watch(_ options: ObserverOptions, format: NotificationFormat, word: String) -> ExitCode {
        let watch = Watch(
            names: names, object: object, options: options, wanted: wanted, format: isJSON ? .json : format, word: word,
            details: details)
        return CommandSession.run { session in
            if let seconds { session.finish(.timedOut, afterSeconds: seconds) }
            watch.start(on: session)
        }
    }

    private static func positive<Number: Comparable & ExpressibleByIntegerLiteral>(
        _ text: String?, _ option: String, _ convert: (String) -> Number?
    ) throws(UsageError) -> Number? {
        guard let text else { return nil }
        guard let number = convert(text), number > 0, number < 4_000_000 else {
            throw UsageError("\(option): '\(text)' is not a number from 1 to 4000000")
        }
        return number
    }
}
