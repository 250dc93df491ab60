// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// The status of a bridge to other machines as text for people, for `carillon bridge status`, `status` and `top`.
enum BridgeText {
    /// A line with a label, such as `broker`; the style marks trouble.
    typealias Line = (label: String, text: String, style: Terminal.Style?)

    /// Returns a summary in one line.
    ///
    /// - Parameter rates: the exported and the imported notifications per second; nil if they are unknown.
    static func summary(_ status: BridgeStatus, rates: (out: Double, in: Double)? = nil) -> Line {
        let online = status.hosts.count(where: \.isOnline)
        var text = state(status)
        if status.isConnected { text += ", \(online) \(online == 1 ? "other host" : "other hosts")" }
        func count(_ count: UInt64, _ rate: Double?) -> String {
            "\(count)" + (rate.map { " (\(Readable.rate($0))/s)" } ?? "")
        }
        text += "; \(count(status.exported, rates?.out)) out, \(count(status.imported, rates?.in)) in"
        if status.queued > 0 { text += ", \(status.queued) queued" }
        let lost = status.lostOutwards + status.lostInwards
        if lost > 0 { text += ", \(lost) lost" }
        let isGood = status.isConnected && status.reason.isEmpty && status.stripped.isEmpty
        return ("bridge", text, lost > 0 ? .bad : isGood ? nil : .warning)
    }

    /// Returns the state of the connection to the broker, with the reason if there is one.
    private static func state(_ status: BridgeStatus) -> String {
        let broker = status.broker + (status.usesTLS ? "" : ", without TLS")
        let reason = status.reason.isEmpty ? "" : ": \(NotificationFormat.harmless(status.reason))"
        return switch status.state {
        case "connected": "connected to \(broker)\(reason)"
        case "starting", "connecting": "connecting to \(broker)"
        case "waiting": "no connection to \(broker)\(reason)"
        case "taken-over", "held": "disconnected on purpose from \(broker)\(reason)"
        default: "\(status.state), \(broker)\(reason)"
        }
    }

    /// Returns all lines of `carillon bridge status`.
    static func lines(_ status: BridgeStatus) -> [Line] {
        func names(_ names: [String]) -> String {
            names.isEmpty ? "nothing" : names.map(NotificationFormat.readable).joined(separator: "; ")
        }
        func lost(_ count: UInt64) -> String { count == 0 ? "" : ", \(count) lost" }
        let size = Readable.size(status.queuedBytes)
        var lines: [Line] = [
            ("version", status.version, nil),
            ("broker", state(status), status.isConnected && status.reason.isEmpty ? .good : .warning),
            ("here", "\(status.host)/\(status.user) in the realm \(status.realm)", nil),
            ("exports", names(status.exports), nil), ("imports", names(status.imports), nil),
            ("subscriptions", "\(status.subscriptions)", nil),
        ]
        lines += status.files.map { ("configuration", NotificationFormat.harmless($0), nil) }
        lines += status.errors.map { ("mistake", NotificationFormat.harmless($0), .bad) }
        lines += status.warnings.map { ("warning", NotificationFormat.harmless($0), .warning) }
        lines += [
            ("out", "\(status.exported)\(lost(status.lostOutwards))", status.lostOutwards > 0 ? .bad : nil),
            ("in", "\(status.imported)\(lost(status.lostInwards))", status.lostInwards > 0 ? .bad : nil),
            ("waiting", "\(status.queued), \(size); \(status.inFlight) not acknowledged by the broker", nil),
        ]
        if status.acknowledgement > 0 {
            let milliseconds = Readable.decimal(Double(status.acknowledgement) / 1000, places: 1)
            lines.append(("acknowledged in", "\(milliseconds) ms", nil))
        }
        if status.refused > 0 { lines.append(("refused", "\(status.refused)", .warning)) }
        if status.repeated > 0 { lines.append(("duplicates", "\(status.repeated)", nil)) }
        // Hosts whose messages arrive without the properties that the bridge needs, which only MQTT 5 has.
        for host in status.stripped {
            let words = "an intermediary speaks MQTT 3.1.1, so nothing of this host is imported"
            lines.append(("stripped", "\(NotificationFormat.readable(host)): \(words)", .bad))
        }
        for host in status.hosts {
            let name = NotificationFormat.readable("\(host.host)/\(host.user)")
            let software = host.software.isEmpty ? "" : ", \(NotificationFormat.harmless(host.software))"
            lines.append(
                ("host", "\(name) \(host.isOnline ? "online" : "offline")\(software)", host.isOnline ? nil : .dim))
        }
        return lines
    }
}
