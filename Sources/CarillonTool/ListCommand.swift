// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// `carillon clients` and `carillon observers [CLIENT]`: list the clients of the service, its posters, or registered
/// observers, as a table or as JSON.
enum ListCommand {
    /// The entries of one line, by the keys of columns.
    typealias Row = [(key: String, value: PropertyList)]

    static func runClients(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon clients", usage: "", summary: "Lists the programs that the service knows.",
            description: description)
        let posters = parser.flag("posters", help: "List posters instead, the busiest first")
        guard let (isJSON, terminal, rest) = try parse(parser, arguments) else { return Output.writeVersion() }
        if let extra = rest.first { throw UsageError("clients takes no argument '\(extra)'") }
        let wantsPosters = parser.value(posters)
        return CommandSession.run(startsService: false) { session in
            guard !wantsPosters else {
                return session.ask(ListPosters()) { posters in
                    // The most posts come first. Posters with the same count stay in the order of the service.
                    let busiest = posters.enumerated().sorted {
                        ($1.element.posted, $0.offset) < ($0.element.posted, $1.offset)
                    }
                    show(
                        busiest.map(\.element.entries), columns: posterColumns, isJSON: isJSON, on: terminal, session)
                }
            }
            session.ask(ListClients()) { clients in
                show(clients.map(\.entries), columns: clientColumns, isJSON: isJSON, on: terminal, session)
            }
        }
    }

    static func runObservers(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon observers", usage: "[CLIENT]",
            summary: "Lists the observers of a client, or of all.",
            description: """
                CLIENT is a unique name such as :1.42, a process id, the name of a program or the id of an application;
                the command applies to all matching clients. \(description)
                """)
        guard let (isJSON, terminal, rest) = try parse(parser, arguments) else { return Output.writeVersion() }
        if rest.count > 1 { throw UsageError("observers takes one CLIENT at most") }
        let chosen: ClientSelector? = if let text = rest.first { try ClientSelector(text) } else { nil }
        let show: @Sendable ([Row], CommandSession) -> Void = { rows, session in
            Self.show(rows, columns: observerColumns, isJSON: isJSON, on: terminal, session)
        }
        return CommandSession.run(startsService: false) { session in
            // A unique name needs no list of clients. A client that has left has no observers, which is no error.
            if let chosen, UniqueName(rawValue: chosen.text) != nil {
                return collect(of: [chosen.text], on: session, show: show)
            }
            session.ask(ListClients()) { clients in
                let those = chosen.map { clients.filter($0.contains) } ?? clients
                if let chosen, those.isEmpty { return chosen.reportNone(on: session) }
                collect(of: those.map(\.name.rawValue), on: session, show: show)
            }
        }
    }

    private static let description = "A service that does not run is not started, and the exit status is 2."
    private static let clientColumns = [
        "name", "pid", "process", "suspended", "cause", "observers", "queued", "delivered", "dropped", "flow",
        "unconfirmed", "posted", "channel", "app",
    ]
    private static let posterColumns = ["name", "pid", "process", "posted", "refused", "app"]
    private static let observerColumns = ["client", "id", "name", "object", "suspension-behavior"]

    /// Declares the options of both commands, and reads them.
    ///
    /// - Returns: nil if only the version was requested.
    private static func parse(
        _ parser: CommandLineParser, _ arguments: [String]
    ) throws(UsageError) -> (isJSON: Bool, terminal: Terminal, rest: [String])? {
        let json = parser.flag("json", short: "j", help: "Print one JSON object on each line")
        let color = ColorChoice.declare(on: parser)
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return nil }
        return (parser.value(json), Terminal(color: try ColorChoice.value(of: color, from: parser)), rest)
    }

    /// Requests the observers of one client after the other, and then shows all.
    ///
    /// - Parameters:
    ///   - clients: the unique names of the clients that are not complete.
    ///   - last: the last received observer of the first client. The service lists observers in pages, and an empty
    ///     page is the end.
    ///   - rows: the rows so far.
    ///   - show: receives all rows in the end.
    private static func collect(
        of clients: [String], after last: ObserverID = ObserverID(rawValue: 0), on session: CommandSession,
        rows: [Row] = [], show: @escaping @Sendable ([Row], CommandSession) -> Void
    ) {
        guard let client = clients.first else { return show(rows, session) }
        session.ask(ListObserversFrom(of: client, after: last)) { observers in
            guard let last = observers.last?.observer.id else {
                return collect(of: Array(clients.dropFirst()), on: session, rows: rows, show: show)
            }
            let more = observers.map { each -> Row in
                let observer = each.observer
                return [
                    ("client", .string(client)), ("id", .uint64(observer.id.rawValue)),
                    ("name", .string(observer.name)), ("object", .string(observer.object)),
                    ("suspension-behavior", .string(observer.suspensionBehavior)),
                ]
            }
            collect(of: clients, after: last, on: session, rows: rows + more, show: show)
        }
    }

    /// Prints the rows as JSON or as a table, and ends the run.
    private static func show(
        _ rows: [Row], columns: [String], isJSON: Bool, on terminal: Terminal, _ session: CommandSession
    ) {
        defer { session.finish(.done) }
        guard isJSON else { return show(rows, columns: columns, on: terminal, session) }
        for row in rows {
            session.print(PropertyListJSON.object(row.map { ($0.key, PropertyListJSON.text($0.value)) }))
        }
    }

    /// Prints a table for people. Columns of numbers are right-aligned.
    static func show(_ rows: [Row], columns: [String], on terminal: Terminal, _ session: CommandSession) {
        var table = Table(
            columns.map { column in
                let isNumber = rows.contains { row in row.contains { $0.key == column && $0.value.count != nil } }
                return Table.Column(column, isNumber ? .right : .left)
            })
        for row in rows {
            // An older service does not send all entries.
            table.append(columns.map { column in row.first { $0.key == column }.map(cell) ?? Table.Cell(Sign.unknown) })
        }
        for line in table.lines(on: terminal) { session.print(line) }
        let hidden = table.hiddenColumns(on: terminal)
        if !hidden.isEmpty {
            session.print(
                terminal.styled(
                    "(omitted: \(hidden.joined(separator: ", ")); a wider terminal or --json shows them)", .dim))
        }
    }

    /// Returns the cell of an entry, with a sign for an empty or unknown value.
    private static func cell(_ entry: (key: String, value: PropertyList)) -> Table.Cell {
        let text =
            switch (entry.key, entry.value) {
            case ("process", .string("")), ("pid", .uint32(0)): Sign.unknown
            case ("name", .string("")), ("object", .string("")): Sign.any
            case (_, .string("")), ("cause", .string("none")): Sign.none
            default: NotificationFormat.readable(entry.value.readable)
            }
        return Table.Cell(text, style(of: entry.key, entry.value))
    }

    /// Returns the style that marks a sign of trouble; nil for any other entry.
    private static func style(of key: String, _ value: PropertyList) -> Terminal.Style? {
        switch (key, value) {
        case ("suspended", .boolean(true)): .warning
        case ("flow", .string(let flow)) where !["", "open"].contains(flow): .warning
        case ("dropped", _), ("refused", _): value.count ?? 0 > 0 ? .bad : nil
        default: nil
        }
    }
}

extension PropertyList {
    /// A number that is not negative, as in lists; nil for any other value.
    fileprivate var count: UInt64? {
        switch self {
        case .uint32(let number): UInt64(number)
        case .uint64(let number): number
        default: nil
        }
    }
}
