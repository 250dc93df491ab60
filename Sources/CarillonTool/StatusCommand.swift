// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonWire

/// `carillon status`: prints the state, the permissions and the counters of the service, and a line about the bridge.
enum StatusCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon status", usage: "", summary: "Shows the state and the counters of the service.",
            description: "A service that does not run is not started, and the exit status is 2.")
        let json = parser.flag("json", short: "j", help: "Print one JSON object")
        let color = ColorChoice.declare(on: parser)
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        if let extra = rest.first { throw UsageError("status takes no argument '\(extra)'") }
        let isJSON = parser.value(json)
        let terminal = Terminal(color: try ColorChoice.value(of: color, from: parser))
        let bridge = BridgeInquirer()
        return CommandSession.run(startsService: false) { session in
            session.askProperties { properties in
                // The bridge is optional, so an error or a missing answer only omits its line.
                bridge.askStatus(within: .milliseconds(1_000)) { answer in
                    let bridge = (try? answer.get()) ?? nil
                    if isJSON {
                        var entries = properties.entries
                        entries["Bridge"] = bridge.map { .dictionary($0.entries) }
                        session.print(PropertyListJSON.text(.dictionary(entries)))
                    } else {
                        // Lines are not cut, even on a narrow terminal, since some are sentences.
                        let uncutOutput = Terminal(width: nil, hasColors: terminal.hasColors)
                        for line in lines(of: properties, bridge: bridge, on: uncutOutput) { session.print(line) }
                    }
                    session.finish(.done)
                }
            }
        }
    }

    /// Returns lines about the policy, the permissions of programs; none for a service that does not send it.
    private static func text(of policy: PolicyProperty) -> [(label: String, text: String)] {
        guard !policy.unidentified.isEmpty else { return [] }
        func names(_ names: [String]) -> String { names.isEmpty ? "none" : names.joined(separator: "; ") }
        let confined = policy.confinesUnidentified ? "open names only" : "all names"
        var lines = [
            ("sandboxes", "own and open names"), ("open names", names(policy.openNames)),
            ("unidentified", "\(policy.unidentified), \(confined)"),
        ]
        for (id, lists) in policy.applications.sorted(by: { $0.key < $1.key }) {
            for (key, list) in lists.sorted(by: { $0.key < $1.key }) {
                lines.append(("application", "\(id) \(key): own and open names, \(names(list))"))
            }
        }
        return lines
    }

    /// Returns lines about the exchange with other sessions of the machine; none if it is off.
    private static func text(of sessions: [String: PropertyList]) -> [(label: String, text: String)] {
        func text(_ values: [String: PropertyList], _ key: String) -> String {
            switch values[key] {
            case .string(let text)?: text
            case .uint32(let number)?: "\(number)"
            case .uint64(let number)?: "\(number)"
            default: "?"
            }
        }
        let state = text(sessions, "state")
        guard !sessions.isEmpty, state != "off" else { return [] }
        func counts(_ values: [String: PropertyList], _ keys: [String]) -> String {
            keys.map { "\(text(values, $0)) \($0)" }.joined(separator: ", ")
        }
        var lines = [("sessions", "\(state), " + counts(sessions, ["sent", "received", "lost", "refused"]))]
        guard case .array(let peers)? = sessions["peers"] else { return lines }
        for case .dictionary(let peer) in peers {
            let who = "\(text(peer, "name")) of user \(text(peer, "uid")), \(text(peer, "state"))"
            lines.append(("session", "\(who): " + counts(peer, ["sent", "received", "lost", "queued"])))
        }
        return lines
    }

    /// Returns the whole text: the state of the service, followed by its counters in groups, each with its meaning.
    private static func lines(
        of properties: CenterProperties, bridge: BridgeStatus?, on terminal: Terminal
    ) -> [String] {
        var about = Table([Table.Column("label"), Table.Column("value")])
        func line(_ label: String, _ value: String, _ style: Terminal.Style? = nil) {
            about.append([Table.Cell(label, .dim), Table.Cell(value, style)])
        }
        line("version", properties.version)
        line("activity", "\(properties.activitySource), \(properties.activityState)")
        if !properties.activityReason.isEmpty { line("", properties.activityReason, .warning) }
        if let configuration = properties.configuration {
            for file in configuration.files { line("configuration", file) }
            for error in configuration.errors { line("mistake", error, .bad) }
        }
        for (label, text) in Self.text(of: properties.policy) { line(label, text) }
        for (label, text) in Self.text(of: properties.sessions) { line(label, text) }
        if let summary = bridge.map({ BridgeText.summary($0) }) { line(summary.label, summary.text, summary.style) }

        var counters = Table([Table.Column("key"), Table.Column("count", .right), Table.Column("help")])
        // The titles of groups, by the number of the row that they precede.
        var titles: [Int: String] = [:]
        let entries = properties.statistics.entries
        for group in StatisticsText.Group.allCases {
            let members = entries.filter { StatisticsText.group(of: $0.key) == group }
            if !members.isEmpty { titles[counters.rows.count] = group.rawValue }
            for (key, count) in members {
                let text = key.split(separator: "-").contains("bytes") ? Readable.size(count) : "\(count)"
                let style: Terminal.Style? = count > 0 && StatisticsText.isLoss(key) ? .bad : nil
                counters.append([
                    Table.Cell("  " + key), Table.Cell(text, style), Table.Cell(StatisticsText.help(of: key), .dim),
                ])
            }
        }
        var lines = about.lines(on: terminal, showsTitles: false)
        for (number, line) in counters.lines(on: terminal, showsTitles: false).enumerated() {
            if let title = titles[number] { lines += ["", terminal.styled(title, .bold)] }
            lines.append(line)
        }
        return lines
    }
}
