// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The arguments that `carillon observe`, `carillon monitor` and `carillon wait` have in common.
struct ObservationArguments {
    /// The names to observe, which are the arguments that are no options; empty for any name.
    let names: [String]
    /// The number of `--count`; nil if it was not given.
    let wanted: Int?
    /// The time of `--timeout` in seconds; nil if it was not given.
    let seconds: Double?
    let format: NotificationFormat
    /// Whether `--json`, `--format` or `--long` was given.
    let hasFormat: Bool
    /// Whether `--glob` was given.
    let hasGlob: Bool
    private let object: String
    private let filter: NotificationFilter

    /// Declares the options, and reads them.
    ///
    /// - Parameters:
    ///   - showsPoster: whether lines for people show the poster.
    ///   - more: declares the options of one command, which the help shows behind the selection options.
    /// - Returns: nil if only the version was requested.
    static func read<More>(
        _ arguments: [String], by parser: CommandLineParser, showsPoster: Bool = false,
        declaring more: (CommandLineParser) -> More
    ) throws(UsageError) -> (common: ObservationArguments, more: More)? {
        let object = parser.string("object", short: "o", placeholder: "OBJECT", help: "Only notifications of OBJECT")
        let glob = parser.string(
            "glob", short: "g", placeholder: "PATTERN",
            help: "Only names that match PATTERN: * stands for any text, ? for a character")
        let matches = parser.strings(
            "match", placeholder: "KEY=VALUE",
            help: "Only notifications with this entry in userInfo; KEY alone matches any value")
        let more = more(parser)
        let json = parser.flag("json", short: "j", help: "Print one JSON object on each line")
        let template = parser.string(
            "format", short: "f", placeholder: "FORMAT",
            help: "Print FORMAT: %n is the name, %o the object, %u userInfo, %{KEY} an entry of it, %t the time")
        let long = parser.flag("long", short: "l", help: "Print each entry of userInfo on a line of its own")
        let details = parser.flag(
            "details", help: "Show the time and the poster of each, as the bus and the kernel verified it")
        let marks = parser.flag(
            "since-registration",
            help: "Begin each line with the time since the registration, and the sequence number")
        let color = ColorChoice.declare(on: parser)
        let count = parser.string("count", short: "n", placeholder: "N", help: "End after N notifications")
        let timeout = parser.string(
            "timeout", short: "t", placeholder: "TIME", help: "End after TIME, with status 3: 90, 5m, 1h30m")
        let version = parser.flag("version", help: "Show the version and exit")
        let names = try parser.parse(arguments)
        if parser.value(version) { return nil }
        let wanted = try NumberArguments.count(parser.value(count), "--count")
        let seconds = try NumberArguments.seconds(parser.value(timeout), "--timeout")
        if let name = names.first(where: \.isEmpty) { throw UsageError("'\(name)' is not the name of a notification") }
        if let glob = parser.value(glob), !names.isEmpty {
            throw UsageError("--glob '\(glob)' and names exclude each other")
        }
        let formats = [parser.value(json), parser.value(template) != nil, parser.value(long)]
        if formats.count(where: { $0 }) > 1 { throw UsageError("--json, --format and --long exclude each other") }
        var style = NotificationFormat.Style.line
        if parser.value(json) { style = .json }
        if parser.value(long) { style = .long }
        if let template = parser.value(template) { style = .template(try NotificationTemplate(template)) }
        let terminal = Terminal(color: try ColorChoice.value(of: color, from: parser))
        let format = NotificationFormat(
            style: style, terminal: terminal, showsPoster: showsPoster, showsDetails: parser.value(details),
            showsMark: parser.value(marks))
        let common = ObservationArguments(
            names: names, wanted: wanted, seconds: seconds, format: format, hasFormat: formats.contains(true),
            hasGlob: parser.value(glob) != nil, object: parser.value(object) ?? "",
            filter: try NotificationFilter(glob: parser.value(glob), matches: parser.value(matches)))
        return (common, more)
    }

    /// Returns the scope of the observation that these arguments describe.
    ///
    /// - Parameters:
    ///   - wanted: the number of notifications after which the command ends; nil for no end.
    ///   - details: the details that the command needs in addition to those of the format.
    func scope(_ options: ObserverOptions, wanted: Int?, details: Details = []) -> Observation.Scope {
        Observation.Scope(
            names: names, object: object, options: options, filter: filter, wanted: wanted,
            details: format.details.union(details))
    }

    /// Warns of names that look like patterns, on standard error.
    func warnOfPatterns() {
        for name in names where GlobPattern.isPattern(name) {
            printError("carillon: '\(name)' is not a pattern here: names are compared exactly; try --glob '\(name)'")
        }
    }
}
