// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonDBus
import CarillonMainLoop
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// `carillon top`: a live display of the service's activity (B3), on the full screen, or printed with `--batch` or
/// `--json`.
///
/// This file reads the arguments. ``TopRun`` is the run, ``TopPoll`` queries the service, ``TopState`` has the user's
/// choices, and ``TopPage`` composes the lines.
enum TopCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon top", usage: "", summary: "Shows a live display of the service and its clients.",
            description: """
                On the screen h lists the keys. Rates are known from the second sample on. A service that does not run
                is not started: the screen waits for it, and --batch ends with status 2 if it does not run at the start.
                """)
        let interval = parser.string(
            "interval", placeholder: "TIME", help: "Query the service every TIME; 2 seconds if not given")
        let count = parser.string("count", short: "n", placeholder: "N", help: "End after N samples")
        let view = parser.string(
            "view", short: "w", placeholder: "VIEW", help: "The first view: \(ChoiceArguments.names(TopView.self))")
        let sort = parser.string(
            "sort", placeholder: "COLUMN", help: "Sort the first view by the column with this title")
        let reverse = parser.flag("reverse", help: "Reverse the order")
        let filter = parser.string("filter", placeholder: "TEXT", help: "Only rows that contain TEXT")
        let batch = parser.flag("batch", short: "b", help: "Print each sample, instead of taking the terminal")
        let json = parser.flag("json", short: "j", help: "Print one JSON object for each sample")
        let color = ColorChoice.declare(on: parser)
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        if let extra = rest.first { throw UsageError("top takes no argument '\(extra)'") }

        var state = TopState()
        state.view = try ChoiceArguments.one(parser.value(view), "--view") ?? .clients
        state.filter = parser.value(filter) ?? ""
        if let title = parser.value(sort) {
            guard let column = state.view.columns.firstIndex(where: { $0.title == title }) else {
                let titles = state.view.columns.map(\.title).joined(separator: ", ")
                throw UsageError("--sort: '\(title)' is none of: \(titles)")
            }
            state.order = TopState.Order(column: column)
        }
        if parser.value(reverse) { state.order.isReversed = true }
        let colors = try ColorChoice.value(of: color, from: parser)
        let run = TopRun(
            state: state,
            every: try NumberArguments.seconds(parser.value(interval), "--interval", from: 0.1, to: 86_400) ?? 2,
            times: try NumberArguments.count(parser.value(count), "--count"))
        if parser.value(json) {
            return run.print { sample, rates, bus in [TopJSON.text(of: sample, rates: rates, bus: bus)] }
        }
        if parser.value(batch) { return run.printPages(color: colors) }
        guard isatty(STDIN_FILENO) == 1, isatty(STDOUT_FILENO) == 1 else {
            throw UsageError("top needs a terminal; --batch and --json do not")
        }
        return run.runOnScreen(color: colors)
    }
}
