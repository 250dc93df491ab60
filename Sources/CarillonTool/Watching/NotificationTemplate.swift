// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The template of the option `--format`: fixed text with fields such as `%n`, which each notification replaces.
struct NotificationTemplate {
    /// A field, and the letter that stands for it behind `%`.
    enum Field: Character, CaseIterable {
        case name = "n"
        case object = "o"
        case userInfo = "u"
        /// Date and time in UTC.
        case time = "t"
        /// The time of day in the local time zone.
        case clockTime = "T"
        case poster = "p"
        case serial = "s"
        case sequence = "q"
        /// The time since the registration and the sequence number (``Arrival/mark``).
        case mark = "m"
        case userID = "U"
        case processID = "P"
        /// The name of the poster's program.
        case process = "C"
        case application = "A"
        /// The systemd unit of the poster.
        case unit = "N"

        /// The detail that the client has to request from the service for the field; nil if each notification has it.
        var detail: Detail? {
            switch self {
            case .time, .clockTime: .time
            case .mark: .retained
            case .userID: .userID
            case .processID: .processID
            case .process: .process
            case .application: .application
            case .unit: .unit
            case .name, .object, .userInfo, .poster, .serial, .sequence: nil
            }
        }
    }

    private enum Part {
        case text(String)
        case field(Field)
        /// The entry of userInfo with this key.
        case entry(String)
    }

    private let parts: [Part]

    /// Parses a template with fields `%X`, entries `%{KEY}`, and the escapes `%%`, `\\`, `\n` and `\t`.
    ///
    /// - Throws: an error for an unknown field, and for an entry without a key or an end.
    init(_ format: String) throws(UsageError) {
        var parts: [Part] = []
        // The fixed text since the last field, which becomes a part of its own at the next field.
        var text = ""
        func flush() {
            if !text.isEmpty { parts.append(.text(text)) }
            text = ""
        }
        var rest = format[...]
        while let character = rest.popFirst() {
            switch (character, rest.first) {
            case ("%", "%"?), ("\\", "\\"?): text.append(rest.removeFirst())
            case ("\\", "n"?):
                rest.removeFirst()
                text.append("\n")
            case ("\\", "t"?):
                rest.removeFirst()
                text.append("\t")
            case ("%", "{"?):
                guard let end = rest.firstIndex(of: "}"), rest.index(after: rest.startIndex) != end else {
                    throw UsageError("--format: '%{' needs a key and '}' after it")
                }
                flush()
                parts.append(.entry(String(rest[rest.index(after: rest.startIndex)..<end])))
                rest = rest[rest.index(after: end)...]
            case ("%", let letter):
                guard let field = letter.flatMap(Field.init) else {
                    let fields = Field.allCases.map { "%\($0.rawValue)" }.joined(separator: " ")
                    let given = letter.map { "%\($0)" } ?? "%"
                    throw UsageError("--format: '\(given)' is not a field; the fields are \(fields) %{KEY} %%")
                }
                rest.removeFirst()
                flush()
                parts.append(.field(field))
            default: text.append(character)
            }
        }
        flush()
        self.parts = parts
    }

    /// The details to request from the service.
    var details: Details {
        Details(parts.compactMap { if case .field(let field) = $0 { field.detail } else { nil } })
    }

    /// Returns the text for a notification. A field whose value is unknown is empty.
    func text(of arrival: Arrival) -> String {
        parts.map { part in
            switch part {
            case .text(let text): text
            case .field(let field): Self.text(of: field, arrival)
            case .entry(let key): arrival.userInfo[key].map { NotificationFormat.harmless($0.readable) } ?? ""
            }
        }.joined()
    }

    private static func text(of field: Field, _ arrival: Arrival) -> String {
        let notification = arrival.notification
        return switch field {
        case .name: NotificationFormat.harmless(notification.name)
        case .object: NotificationFormat.harmless(notification.object)
        case .userInfo: PropertyListJSON.text(.dictionary(arrival.userInfo))
        case .time: ISO8601Date.text(arrival.time)
        case .clockTime: LocalTime.clock(arrival.time)
        case .poster: notification.poster.rawValue
        case .serial: String(notification.serial)
        case .sequence: String(notification.sequence)
        case .mark: arrival.mark
        case .userID, .processID, .process, .application, .unit:
            field.detail.flatMap { arrival.details[$0.rawValue] }.map { NotificationFormat.harmless($0.readable) } ?? ""
        }
    }
}

/// The formatting of times in the local time zone.
enum LocalTime {
    /// Returns the local time of day, such as `09:30:00.125`, of a time in microseconds since 1970.
    static func clock(_ microseconds: Int64) -> String {
        let milliseconds = microseconds / 1000
        var seconds = time_t(milliseconds >= 0 ? milliseconds / 1000 : (milliseconds - 999) / 1000)
        var parts = tm()
        localtime_r(&seconds, &parts)
        func digits(_ number: Int, _ count: Int) -> String {
            let text = String(number)
            return String(repeating: "0", count: max(0, count - text.utf8.count)) + text
        }
        let fraction = Int(milliseconds) - Int(seconds) * 1000
        return [parts.tm_hour, parts.tm_min, parts.tm_sec].map { digits(Int($0), 2) }.joined(separator: ":") + "."
            + digits(fraction, 3)
    }
}
