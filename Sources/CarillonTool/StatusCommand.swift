import MainLoop
import NotificationWire

/// `carillon status`
enum StatusCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon status", usage: "", summary: "Shows what the service is doing.",
            description: "A service that does not run is not started; the exit status is 2 then.")
        let json = parser.flag("json", short: "j", help: "Print one JSON object")
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return CarillonTool.showVersion() }
        if let extra = rest.first { throw UsageError("status takes no argument '\(extra)'") }
        let isJSON = parser.value(json)
        return CommandSession.run(startsService: false) { session in
            session.askProperties { properties in
                session.print(isJSON ? PropertyListJSON.text(.dictionary(properties.entries)) : text(of: properties))
                session.finish(.done)
            }
        }
    }

    private static func text(of properties: CenterProperties) -> String {
        var lines: [String] = []
        func line(_ label: String, _ value: String) {
            lines.append(label + String(repeating: " ", count: max(1, 16 - label.count)) + value)
        }
        line("version", properties.version)
        line("activity", "\(properties.activitySource), \(properties.activityState)")
        let main: [StatisticsKey] = [.clients, .observers, .posted, .delivered, .queued, .dropped]
        let others = properties.statistics.entries.filter { entry in !main.contains { $0.rawValue == entry.key } }
        for key in main { if let count = properties.statistics[key] { line(key.rawValue, "\(count)") } }
        for (key, count) in others.sorted(by: { $0.key < $1.key }) { line(key, "\(count)") }
        return lines.joined(separator: "\n")
    }
}
