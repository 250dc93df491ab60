// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonJSON
import CarillonWire

/// The format in which ``Printer`` writes a notification, as the options of `observe`, `monitor` and `wait` choose it.
/// It also has the functions with which other commands make foreign texts safe for a terminal.
struct NotificationFormat {
    enum Style {
        /// Name, object and userInfo on one line.
        case line
        /// Name and object on one line, followed by one line for each entry of userInfo.
        case long
        /// One JSON object on each line.
        case json
        /// The text of `--format`.
        case template(NotificationTemplate)
    }

    let style: Style
    /// The capabilities of the output, for the styles of lines for people.
    var terminal = Terminal(width: nil, hasColors: false)
    /// Whether lines for people begin with the poster.
    var showsPoster = false
    /// Whether lines for people end with the time and the poster's identity.
    var showsDetails = false
    /// Whether each line begins with the time since the registration, and with the notification's number.
    var showsMark = false

    var isJSON: Bool { if case .json = style { true } else { false } }

    /// The details to request from the service.
    var details: Details {
        var details: Details = showsMark ? [.retained] : []
        if showsDetails {
            details.formUnion([.userID, .processID, .process, .application, .unit, .host, .user, .time])
        }
        if case .template(let template) = style { details.formUnion(template.details) }
        return details
    }

    /// Returns the text of a notification: one line, or several in the style `long`.
    func text(of arrival: Arrival) -> String {
        switch style {
        case .json: Self.json(arrival, withMark: showsMark)
        case .template(let template): (showsMark ? arrival.mark + "  " : "") + template.text(of: arrival)
        case .line: line(arrival, withUserInfo: true)
        case .long: line(arrival, withUserInfo: false) + entries(arrival.userInfo, indented: 4)
        }
    }

    private func line(_ arrival: Arrival, withUserInfo: Bool) -> String {
        let notification = arrival.notification
        var parts = showsMark ? [terminal.styled(arrival.mark, .dim)] : []
        if showsPoster { parts.append(terminal.styled(notification.poster.rawValue, .dim)) }
        parts.append(terminal.styled(Self.readable(notification.name), .bold))
        if !notification.object.isEmpty { parts.append(terminal.styled(Self.readable(notification.object), .good)) }
        if withUserInfo, !arrival.userInfo.isEmpty {
            parts.append(PropertyListJSON.text(.dictionary(arrival.userInfo)))
        }
        if showsDetails, !arrival.details.isEmpty {
            parts.append(terminal.styled(Self.readable(arrival.details), .dim))
        }
        return parts.joined(separator: "  ")
    }

    /// Returns a line for each entry, with nested entries indented.
    private func entries(_ userInfo: [String: PropertyList], indented count: Int) -> String {
        userInfo.sorted { $0.key < $1.key }.map { key, value in
            let head = "\n" + String(repeating: " ", count: count) + terminal.styled(Self.readable(key), .dim)
            if case .dictionary(let inner) = value, !inner.isEmpty { return head + entries(inner, indented: count + 4) }
            return head + "  " + Self.harmless(value.readable)
        }.joined()
    }

    /// Returns a notification as one JSON object.
    ///
    /// - Parameter withMark: whether it has the time since the registration.
    static func json(_ arrival: Arrival, withMark: Bool = false) -> String {
        let notification = arrival.notification
        let observers = notification.observers.map { String($0.rawValue) }.joined(separator: ", ")
        var members = [
            ("name", JSON.quoted(notification.name)), ("object", JSON.quoted(notification.object)),
            ("userInfo", PropertyListJSON.text(.dictionary(arrival.userInfo))), ("observers", "[\(observers)]"),
            ("poster", JSON.quoted(notification.poster.rawValue)), ("serial", String(notification.serial)),
            ("sequence", String(notification.sequence)),
        ]
        if withMark { members.append(("sinceRegistration", Arrival.seconds(arrival.sinceRegistration))) }
        if !arrival.details.isEmpty {
            members.append(("details", PropertyListJSON.text(.dictionary(arrival.details))))
        }
        return PropertyListJSON.object(members)
    }

    /// Returns the details, such as the poster's identity and the time, in brackets and in their fixed order.
    private static func readable(_ values: [String: PropertyList]) -> String {
        let parts = Detail.allCases.compactMap { detail -> String? in
            guard let value = values[detail.rawValue] else { return nil }
            if case .int64(let time) = value, detail == .time {
                return "time \(ISO8601Date.text(time))"
            }
            return "\(detail.rawValue) \(Self.readable(value.readable))"
        }
        return "[\(parts.joined(separator: ", "))]"
    }

    /// Returns a text of several words for people. Control characters, and characters that change the direction of the
    /// text, are replaced by their JSON escapes, so that a text of another program can't deceive the user.
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

    /// Returns a name or an object for people: as it is, or as a JSON string if it has blanks or characters that
    /// ``harmless(_:)`` replaces.
    static func readable(_ text: String) -> String {
        let isPlain = text.unicodeScalars.allSatisfy { !$0.properties.isWhitespace && !JSON.isDeceptive($0) }
        return isPlain ? text : JSON.quoted(text)
    }
}

extension PropertyList {
    /// The text for people: a string as it is, any other value as JSON.
    var readable: String {
        if case .string(let text) = self { text } else { PropertyListJSON.text(self) }
    }
}
