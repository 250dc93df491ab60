import Carillon
import DBus
import MainLoop
import NotificationCore
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
        return BusSession.run { session in
            session.askProperties { properties in
                printLine(isJSON ? PropertyListJSON.text(.dictionary(properties)) : text(of: properties))
                session.finish(.done)
            }
        }
    }

    private static func text(of properties: [String: PropertyList]) -> String {
        var lines: [String] = []
        func line(_ label: String, _ value: String) {
            lines.append(label + String(repeating: " ", count: max(1, 16 - label.count)) + value)
        }
        func value(_ key: String) -> String? { properties[key]?.readable }
        if let version = value("Version") { line("version", version) }
        if let source = value("ActivitySource") {
            line("activity", value("ActivityState").map { "\(source), \($0)" } ?? source)
        }
        if case .dictionary(let statistics) = properties["Statistics"] {
            let main = ["clients", "observers", "posted", "delivered", "queued", "dropped"]
            for key in main + statistics.keys.filter({ !main.contains($0) }).sorted() {
                if let count = statistics[key] { line(key, count.readable) }
            }
        }
        return lines.joined(separator: "\n")
    }
}
