// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// The composition of a page of `carillon top`: a header and a table, made from the last sample and the user's choices.
struct TopPage {
    /// The last sample; nil before the first one.
    let sample: TopSample?
    let rates: TopRates?
    /// The reason why there is no newer sample; nil while the service answers.
    let absence: ServiceError?
    /// The address of the bus.
    let bus: String

    // MARK: Printed page

    /// Returns the page with all rows, for `--batch`.
    ///
    /// - Parameter width: the number of columns; nil for no limit.
    func lines(_ state: TopState, width: Int?) -> [StyledLine] {
        var lines = header()
        guard let sample, let rates else { return lines }
        lines.append(StyledLine())
        if let problem = problem(of: state) { lines.append(problem) }
        return lines + table(state.arrange(state.view.rows(of: sample, rates: rates)), state).lines(within: width)
    }

    // MARK: Screen

    /// Returns the page for the full screen, with the rows that fit.
    ///
    /// - Parameter state: the user's choices, to which the number of rows is added for scrolling.
    /// - Returns: a line for each line of the screen, and the position of the cursor; nil for no cursor.
    func screen(
        _ state: inout TopState, lines height: Int, columns width: Int
    ) -> (lines: [StyledLine], cursor: (line: Int, column: Int)?) {
        // Instead of the header the help has only the title, so that it fits on a terminal of 24 lines.
        var lines = state.showsHelp ? [title()] + help(state) : header() + [tabs(state)]
        if !state.showsHelp, let sample, let rates {
            if let problem = problem(of: state) { lines.append(problem) }
            let rows = state.arrange(state.view.rows(of: sample, rates: rates))
            // Two lines are needed for the titles above the rows and the keys below.
            state.count = rows.count
            state.visibleRows = max(1, height - lines.count - 2)
            state.limitScrollPosition()
            let all = table(rows, state).lines(within: width)
            lines.append(padded(all[0], to: width).styled(.reverse))
            // While the service does not answer, the rows are old and therefore dim.
            lines += all.dropFirst(1 + state.first).prefix(state.visibleRows).map {
                absence == nil ? $0 : $0.styled(.dim)
            }
        }
        lines = Array(lines.prefix(max(0, height - 1)))
        lines += Array(repeating: StyledLine(), count: max(0, height - 1 - lines.count))
        if let text = state.editing?.text {
            let prompt = StyledLine("filter: \(text)")
            return (lines + [prompt], (height - 1, DisplayWidth.columns(of: prompt.text)))
        }
        return (lines + [keys(state)], nil)
    }

    /// Returns the last line of the screen: the most important keys, and the position of the shown rows.
    private func keys(_ state: TopState) -> StyledLine {
        if state.showsHelp { return StyledLine("press any key to return", .dim) }
        var line = StyledLine("q quit  h help  tab view  < > sort  r reverse  / filter  p pause", .dim)
        if state.count > state.visibleRows {
            line.append(
                "  rows \(state.first + 1)-\(min(state.count, state.first + state.visibleRows)) of \(state.count)")
        }
        return line
    }

    /// Returns the line with blanks up to a width, so that its style covers the whole line.
    private func padded(_ line: StyledLine, to width: Int) -> StyledLine {
        var line = line
        line.append(String(repeating: " ", count: max(0, width - DisplayWidth.columns(of: line.text))))
        return line
    }

    /// Returns the line with the views, the order and the filter.
    private func tabs(_ state: TopState) -> StyledLine {
        var line = StyledLine()
        for (number, view) in TopView.allCases.enumerated() {
            line.append(" \(number + 1) \(view.rawValue) ", view == state.view ? .reverse : nil)
        }
        let column = state.view.columns[state.order.column]
        line.append("  by \(column.title)\(state.order.isReversed ? ", reversed" : "")", .dim)
        if state.editing == nil, !state.filter.isEmpty { line.append("  filter: \(state.filter)", .warning) }
        if state.isPaused { line.append("  paused", .warning) }
        return line
    }

    /// Returns the lines of the help, which lists all keys.
    private func help(_ state: TopState) -> [StyledLine] {
        let keys = [
            ("q", "quit"), ("h, ?", "this help"), ("tab, 1, 2, 3", "another view: clients, values, limits"),
            ("< >", "sort by the column to the left, to the right"), ("r", "reverse the order"),
            ("/", "show only rows that contain a text; escape shows all"), ("p, space", "pause or continue"),
            ("arrows, page up and down", "other rows"), ("Control-L", "redraw the screen"),
        ]
        var table = Table([Table.Column("key"), Table.Column("action")])
        for (key, what) in keys { table.append([Table.Cell(key, .bold), Table.Cell(what)]) }
        for column in state.view.columns {
            let order = "sort by \(column.title): \(column.help)"
            table.append([Table.Cell(String(Character(column.key)), .bold), Table.Cell(order)])
        }
        return table.lines(within: nil, showsTitles: false)
    }

    private func table(_ rows: [TopView.Row], _ state: TopState) -> Table {
        let sorted = state.order.column
        var table = Table(
            state.view.columns.enumerated().map { number, column in
                // An arrow marks the order of the sorted column. Numbers descend unless the order is reversed.
                let mark = number != sorted ? "" : column.isNumber != state.order.isReversed ? "↓" : "↑"
                return Table.Column(column.title + mark, column.isNumber ? .right : .left)
            })
        for row in rows { table.append(row.cells.map(\.shown)) }
        return table
    }

    /// Returns the reason why the service did not list the retained values; nil otherwise.
    private func problem(of state: TopState) -> StyledLine? {
        guard state.view == .values, case .failure(let error)? = sample?.values else { return nil }
        return StyledLine("no values: \(error.reason)", .warning)
    }

    // MARK: Header

    /// Returns the lines above the table. Without an answer of the service, rates are unknown.
    private func header() -> [StyledLine] {
        var lines = [title()]
        guard let sample, let rates else { return lines }
        let statistics = sample.properties.statistics
        func count(_ key: StatisticsKey) -> UInt64 { statistics[key] ?? 0 }
        func rate(_ key: StatisticsKey) -> String {
            absence == nil ? rates.perSecond(key).map(Readable.rate) ?? Sign.unknown : Sign.unknown
        }

        var traffic = StyledLine("posts/s \(rate(.posted))  deliveries/s \(rate(.delivered))  dropped ")
        traffic.append("\(count(.dropped))", count(.dropped) > 0 ? .bad : nil)
        traffic.append(
            "  clients \(count(.clients))  observers \(count(.observers))  channels \(count(.channels))"
                + "  values \(count(.retained))")
        lines.append(traffic)

        func size(_ key: StatisticsKey) -> String { Readable.size(count(key)) }
        let memory = sample.process.map { Readable.size($0.memory) } ?? Sign.unknown
        lines.append(
            StyledLine(
                "memory \(memory)  queued \(count(.queued)), \(size(.queuedBytes))  queued posts "
                    + "\(count(.queuedPosts)), \(size(.queuedPostBytes))  in flight \(size(.inFlightBytes))  values "
                    + size(.retainedBytes)))

        var activity = StyledLine("activity \(sample.properties.activitySource), \(sample.properties.activityState)")
        if !sample.properties.activityReason.isEmpty {
            activity.append("  \(sample.properties.activityReason)", .dim)
        }
        lines.append(activity)
        if let bridge = bridge(sample) { lines.append(bridge) }
        return lines
    }

    /// Returns the line about the bridge; nil if there is none.
    private func bridge(_ sample: TopSample) -> StyledLine? {
        switch sample.bridge {
        case .success(let bridge)?:
            let isNow = absence == nil
            let line = BridgeText.summary(
                bridge.status,
                rates: isNow ? bridge.outPerSecond.flatMap { out in bridge.inPerSecond.map { (out, $0) } } : nil)
            return StyledLine("\(line.label) \(line.text)", line.style)
        case .failure?: return StyledLine("bridge does not answer", .warning)
        case nil: return nil
        }
    }

    /// Returns the first line: the version and the process of the service, or the reason for the wait.
    private func title() -> StyledLine {
        var line = StyledLine("carillon top", .bold)
        if let absence {
            line.append("  waiting for the service", .warning)
            if let sample {
                let age = Double(WallClock.microseconds() - sample.time) / 1e6
                line.append("; the data below is from \(Readable.ago(seconds: age))", .warning)
            }
            line.append("  \(absence)", .dim)
        } else if let sample {
            line.append("  service \(sample.properties.version)")
            if let process = sample.process {
                line.append(", process \(process.id), up \(Readable.duration(wholeSeconds: process.age))")
            }
        } else {
            line.append("  asking the service")
        }
        line.append("  bus \(bus)", .dim)
        return line
    }
}
