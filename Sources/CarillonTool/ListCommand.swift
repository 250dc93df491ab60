import BusNames
import MainLoop
import NotificationCore
import NotificationWire

/// `carillon clients` and `carillon observers [CLIENT]`
enum ListCommand {
    typealias Row = [(key: String, value: PropertyList)]

    static func runClients(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon clients", usage: "", summary: "Lists the programs that the service knows.",
            description: description)
        guard let (isJSON, rest) = try parse(parser, arguments) else { return Output.writeVersion() }
        if let extra = rest.first { throw UsageError("clients takes no argument '\(extra)'") }
        return CommandSession.run(startsService: false) { session in
            session.ask(ListClients()) { clients in
                show(clients.map(\.entries), columns: clientColumns, isJSON: isJSON, on: session)
            }
        }
    }

    static func runObservers(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon observers", usage: "[CLIENT]",
            summary: "Lists the observers of a client, such as :1.42, or of all.", description: description)
        guard let (isJSON, rest) = try parse(parser, arguments) else { return Output.writeVersion() }
        if rest.count > 1 { throw UsageError("observers takes one CLIENT at most") }
        let client = rest.first
        if let client, UniqueName(rawValue: client) == nil {
            throw UsageError(
                "'\(client)' is no client; clients are called like :1.42, as 'carillon clients' lists them")
        }
        return CommandSession.run(startsService: false) { session in
            if let client { return collect(of: [client], on: session, isJSON: isJSON) }
            session.ask(ListClients()) { clients in
                collect(of: clients.map(\.name.rawValue), on: session, isJSON: isJSON)
            }
        }
    }

    private static let description = "A service that does not run is not started; the exit status is 2 then."
    private static let clientColumns = [
        "name", "pid", "process", "suspended", "cause", "observers", "queued", "delivered", "dropped", "flow",
        "unconfirmed", "posted", "channel", "app",
    ]
    private static let observerColumns = ["client", "id", "name", "object", "suspension-behavior"]

    /// - Returns: nil when only the version was wanted.
    private static func parse(
        _ parser: CommandLineParser, _ arguments: [String]
    ) throws(UsageError) -> (isJSON: Bool, rest: [String])? {
        let json = parser.flag("json", short: "j", help: "Print a JSON object a line")
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        return parser.value(version) ? nil : (parser.value(json), rest)
    }

    /// Asks for the observers of one client after the other, in pieces.
    private static func collect(
        of clients: [String], after last: ObserverID = ObserverID(rawValue: 0), on session: CommandSession,
        isJSON: Bool, rows: [Row] = []
    ) {
        guard let client = clients.first else {
            return show(rows, columns: observerColumns, isJSON: isJSON, on: session)
        }
        session.ask(ListObserversFrom(of: client, after: last)) { observers in
            guard let last = observers.last?.observer.id else {
                return collect(of: Array(clients.dropFirst()), on: session, isJSON: isJSON, rows: rows)
            }
            let more = observers.map { each -> Row in
                let observer = each.observer
                return [
                    ("client", .string(client)), ("id", .uint64(observer.id.rawValue)),
                    ("name", .string(observer.name)), ("object", .string(observer.object)),
                    ("suspension-behavior", .string(observer.suspensionBehavior)),
                ]
            }
            collect(of: clients, after: last, on: session, isJSON: isJSON, rows: rows + more)
        }
    }

    private static func show(_ rows: [Row], columns: [String], isJSON: Bool, on session: CommandSession) {
        defer { session.finish(.done) }
        guard isJSON else { return show(rows, columns: columns, on: session) }
        for row in rows {
            session.print(PropertyListJSON.object(row.map { ($0.key, PropertyListJSON.text($0.value)) }))
        }
    }

    /// Prints a table for people.
    static func show(_ rows: [Row], columns: [String], on session: CommandSession) {
        // Any name and object is the empty string on the bus; a person reads a star more easily.
        let cells = rows.map { row in
            columns.map { column in
                let text = row.first { $0.key == column }.map { NotificationFormat.readable($0.value.readable) } ?? ""
                return text.isEmpty ? "*" : text
            }
        }
        let widths = columns.indices.map { index in ([columns] + cells).map { $0[index].count }.max() ?? 0 }
        for row in [columns] + cells {
            let padded = zip(row, widths).map { $0 + String(repeating: " ", count: $1 - $0.count) }
            session.print(String(padded.joined(separator: "  ").reversed().drop { $0 == " " }.reversed()))
        }
    }
}
