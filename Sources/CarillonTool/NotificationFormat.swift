import JSON
import NotificationCore
import NotificationWire

/// How a notification is printed.
enum NotificationFormat {
    /// Name, object, userInfo.
    case people
    /// The same behind the poster.
    case monitor
    /// One JSON object a line.
    case json

    func text(of notification: ArrivedNotification) -> String {
        let userInfo = notification.userInfo
        func json() -> String { PropertyListJSON.text(.dictionary(userInfo.decoded())) }
        switch self {
        case .people, .monitor:
            var parts = self == .monitor ? [notification.poster.rawValue] : []
            parts.append(Self.readable(notification.name))
            if !notification.object.isEmpty { parts.append(Self.readable(notification.object)) }
            if !userInfo.isEmpty { parts.append(json()) }
            if let details = notification.details { parts.append(Self.readable(details)) }
            return parts.joined(separator: "  ")
        case .json:
            let observers = notification.observers.map { String($0.rawValue) }.joined(separator: ", ")
            var members = [
                ("name", JSON.quoted(notification.name)), ("object", JSON.quoted(notification.object)),
                ("userInfo", json()), ("observers", "[\(observers)]"),
                ("poster", JSON.quoted(notification.poster.rawValue)), ("serial", String(notification.serial)),
                ("sequence", String(notification.sequence)),
            ]
            if let details = notification.details {
                members.append(("details", PropertyListJSON.text(.dictionary(details.decoded()))))
            }
            return PropertyListJSON.object(members)
        }
    }

    /// Who posted, and when, in the order of the contract.
    private static func readable(_ details: UserInfoBytes) -> String {
        let values = details.decoded()
        let parts = Detail.allCases.compactMap { detail -> String? in
            guard let value = values[detail.rawValue] else { return nil }
            if case .int64(let time) = value, detail == .time {
                return "time \(ISO8601Date.text(time))"
            }
            return "\(detail.rawValue) \(Self.readable(value.readable))"
        }
        return "[\(parts.joined(separator: ", "))]"
    }

    /// A sentence as it is, with what could confuse a reader or a terminal in it as JSON has it.
    static func harmless(_ sentence: String) -> String {
        var text = String.UnicodeScalarView()
        for scalar in sentence.unicodeScalars {
            if JSON.isDeceptive(scalar) {
                text.append(contentsOf: JSON.quoted(String(scalar)).unicodeScalars.dropFirst().dropLast())
            } else {
                text.append(scalar)
            }
        }
        return String(text)
    }

    /// A text as it is, unless that could confuse a reader or a terminal.
    static func readable(_ text: String) -> String {
        let isPlain = text.unicodeScalars.allSatisfy { !$0.properties.isWhitespace && !JSON.isDeceptive($0) }
        return isPlain ? text : JSON.quoted(text)
    }
}

/// What `observe --json` prints beside notifications: an object with the member `event`, where those have a `name`.
enum ObservationEvent {
    case dropped(count: UInt64, reason: String)
    case missing(count: UInt64)
    case undecodable(reason: String)
    case serviceGone
    case serviceBack

    var json: String {
        switch self {
        case .dropped(let count, let reason):
            object("dropped", ("count", String(count)), ("reason", JSON.quoted(reason)))
        case .missing(let count): object("missing", ("count", String(count)))
        case .undecodable(let reason): object("undecodable", ("reason", JSON.quoted(reason)))
        case .serviceGone: object("service-gone")
        case .serviceBack: object("service-back")
        }
    }

    private func object(_ event: String, _ members: (key: String, value: String)...) -> String {
        PropertyListJSON.object([("event", JSON.quoted(event))] + members)
    }
}

extension PropertyList {
    /// As people read it: a string as it is, everything else as JSON.
    var readable: String {
        if case .string(let text) = self { text } else { PropertyListJSON.text(self) }
    }
}
