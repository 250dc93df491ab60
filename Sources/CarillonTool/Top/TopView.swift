// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// The views that `carillon top` can show below its header, each a table: clients, retained values, or counters and
/// limits.
enum TopView: String, CaseIterable, Sendable {
    case clients
    case values
    case limits

    struct Column: Sendable {
        /// The title of the column, which is also its name in `--sort`.
        let title: String
        /// The key that sorts by the column.
        let key: Unicode.Scalar
        let help: String
        /// Whether the column has numbers, which are aligned to the right and sorted in descending order.
        var isNumber = false
    }

    /// The columns, from left to right.
    var columns: [Column] {
        switch self {
        case .clients: Self.clientColumns
        case .values: Self.valueColumns
        case .limits: Self.limitColumns
        }
    }

    /// The index of the column by which the view is sorted at first: clients by their posts per second.
    var firstColumn: Int { self == .clients ? 5 : 0 }

    private static let clientColumns = [
        Column(title: "name", key: "N", help: "unique name on the bus"),
        Column(title: "pid", key: "I", help: "process id", isNumber: true),
        Column(title: "program", key: "G", help: "program"),
        Column(title: "app", key: "A", help: "application"),
        Column(title: "observers", key: "O", help: "registered observers", isNumber: true),
        Column(title: "post/s", key: "P", help: "its posts per second", isNumber: true),
        Column(title: "deliv/s", key: "D", help: "notifications sent to it per second", isNumber: true),
        Column(title: "queued", key: "Q", help: "notifications queued for it", isNumber: true),
        Column(title: "flow", key: "F", help: "whether it reads: open, waiting, unanswered"),
        Column(title: "unconf", key: "U", help: "unacknowledged messages", isNumber: true),
        Column(title: "suspended", key: "S", help: "whether it is suspended, and why or why not"),
        Column(title: "dropped", key: "L", help: "notifications lost for it", isNumber: true),
        Column(title: "channel", key: "C", help: "whether it has a channel"),
    ]

    private static let valueColumns = [
        Column(title: "name", key: "N", help: "name"),
        Column(title: "object", key: "O", help: "object; - is none"),
        Column(title: "age", key: "A", help: "time since it was posted", isNumber: true),
        Column(title: "size", key: "S", help: "bytes of its texts and its userInfo", isNumber: true),
        Column(title: "poster", key: "P", help: "unique name of the poster"),
        Column(title: "app", key: "I", help: "the application of the poster"),
    ]

    private static let limitColumns = [
        Column(title: "what", key: "W", help: "counter or limit"),
        Column(title: "now", key: "N", help: "present number, or total since the service started", isNumber: true),
        Column(title: "per second", key: "P", help: "increase per second", isNumber: true),
        Column(title: "limit", key: "L", help: "the limit", isNumber: true),
        Column(title: "used", key: "U", help: "used share of the limit, in percent", isNumber: true),
    ]

    // MARK: Rows

    /// A row with a cell for each column.
    struct Row: Sendable {
        var cells: [TopCell]
        /// The text that the filter searches.
        var text: String { cells.map(\.shown.text).joined(separator: " ") }
    }

    /// Returns the rows for a sample, in the order of the service.
    func rows(of sample: TopSample, rates: TopRates) -> [Row] {
        switch self {
        case .clients: sample.clients.map { Self.row(of: $0, rates) }
        case .values: ((try? sample.values?.get()) ?? []).map { Self.row(of: $0, at: sample.time) }
        case .limits: Self.limitRows(of: sample, rates)
        }
    }

    private static func row(of client: ListedClient, _ rates: TopRates) -> Row {
        let isOpen = ["", "open"].contains(client.flow)
        let suspension = client.isSuspended ? client.cause : client.cause == "none" ? "" : "no: \(client.cause)"
        return Row(cells: [
            TopCell(client.name.rawValue),
            client.processID == 0 ? TopCell(nil, number: nil) : TopCell(count: UInt64(client.processID)),
            TopCell(client.process, ifEmpty: Sign.unknown), TopCell(client.application),
            TopCell(count: UInt64(client.observers)), TopCell(rate: rates.perSecond(\.posted, of: client)),
            TopCell(rate: rates.perSecond(\.delivered, of: client)),
            TopCell(count: UInt64(client.queued), client.queued > 0 ? .warning : nil),
            TopCell(client.flow, isOpen ? nil : .warning), TopCell(count: UInt64(client.unconfirmed)),
            TopCell(suspension, client.isSuspended ? .warning : nil),
            TopCell(count: client.dropped, client.dropped > 0 ? .bad : nil), TopCell(client.hasChannel ? "yes" : ""),
        ])
    }

    private static func row(of value: RetainedValueInfo, at now: Int64) -> Row {
        let age = value.time.map { Double(now - $0) / 1e6 }
        return Row(cells: [
            TopCell(value.name), TopCell(value.object),
            TopCell(age.map { Readable.age(seconds: $0) }, number: age), TopCell(size: UInt64(value.byteCount)),
            TopCell(value.poster ?? "", ifEmpty: Sign.unknown), TopCell(value.details["app"]?.readable ?? ""),
        ])
    }

    /// Returns a row for each counter, beside its limit if there is one of the same key, then a row for each other
    /// limit. Only a counter without a limit has a rate.
    private static func limitRows(of sample: TopSample, _ rates: TopRates) -> [Row] {
        let (statistics, limits) = (sample.properties.statistics.entries, sample.properties.limits.entries)
        func cell(_ key: String, _ value: UInt64?) -> TopCell {
            guard let value else { return TopCell("") }
            return key.split(separator: "-").contains("bytes") ? TopCell(size: value) : TopCell(count: value)
        }
        func row(_ key: String, _ now: UInt64?, _ limit: UInt64?) -> Row {
            let used = limit.flatMap { limit in now.map { Double($0) / Double(max(1, limit)) * 100 } }
            // Near a limit the next posts may be refused or lost: trouble from 90 percent on, a warning from 50 on.
            let style: Terminal.Style? = used.flatMap { $0 >= 90 ? .bad : $0 >= 50 ? .warning : nil }
            let isTotal = limit == nil && now != nil
            return Row(cells: [
                TopCell(key), cell(key, now), isTotal ? TopCell(rate: rates.perSecond(named: key)) : TopCell(""),
                cell(key, limit),
                used.map { TopCell("\(Readable.decimal($0, places: 1))%", number: $0, style) } ?? TopCell(""),
            ])
        }
        let now = Dictionary(statistics.map { ($0.key, $0.value) }) { $1 }
        let bound = Dictionary(limits.map { ($0.key, $0.value) }) { $1 }
        return statistics.map { row($0.key, $0.value, bound[$0.key]) }
            + limits.filter { now[$0.key] == nil }.map { row($0.key, nil, $0.value) }
    }
}

/// A cell of a sortable table: its text, and its number for a column of numbers.
struct TopCell: Sendable {
    let shown: Table.Cell
    /// The number by which a column of numbers is sorted. Nil counts as less than any number.
    let number: Double?

    init(_ text: String, _ style: Terminal.Style? = nil, ifEmpty sign: String = Sign.none) {
        shown = Table.Cell(text.isEmpty ? sign : NotificationFormat.readable(text), style)
        number = nil
    }

    /// Creates a cell of a column of numbers.
    ///
    /// - Parameter text: nil for an unknown value.
    init(_ text: String?, number: Double?, _ style: Terminal.Style? = nil) {
        shown = Table.Cell(text ?? Sign.unknown, style)
        self.number = number
    }

    init(count: UInt64, _ style: Terminal.Style? = nil) {
        self.init("\(count)", number: Double(count), style)
    }

    /// - Parameter size: a size in bytes.
    init(size: UInt64) {
        self.init(Readable.size(size), number: Double(size))
    }

    /// - Parameter rate: a rate per second; nil if it is unknown.
    init(rate: Double?) {
        self.init(rate.map(Readable.rate), number: rate)
    }
}

extension RetainedValueInfo {
    /// The size of the name, the object, and the userInfo in its encoding on the bus, in bytes.
    var byteCount: Int {
        // The size can always be computed: the service accepts and keeps only values whose userInfo can be encoded.
        name.utf8.count + object.utf8.count + ((try? UserInfoLayout.byteCount(of: userInfo)) ?? 0)
    }
}
