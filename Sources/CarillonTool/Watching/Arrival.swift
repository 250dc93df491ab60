// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire

/// A notification that ``Observation`` received, decoded for its outputs, with the time of its arrival.
struct Arrival {
    let notification: ArrivedNotification
    /// The time of the post if the service sent that detail, otherwise of the arrival, in microseconds since 1970.
    let time: Int64
    /// The time between the registration and the arrival.
    let sinceRegistration: Duration
    let userInfo: [String: PropertyList]
    /// The details about the post that the service sent on request, such as the poster's process ID, by their wire
    /// keys.
    let details: [String: PropertyList]

    init(_ notification: ArrivedNotification, at now: Int64, sinceRegistration: Duration) {
        self.notification = notification
        self.sinceRegistration = sinceRegistration
        userInfo = notification.userInfo.decoded()
        details = notification.details?.decoded() ?? [:]
        time = if case .int64(let time)? = details[Detail.time.rawValue] { time } else { now }
    }

    /// Whether it is a retained value that existed before the registration. Known only if that detail was requested.
    var isRetained: Bool { details[Detail.retained.rawValue] == .boolean(true) }

    /// The text of `--since-registration`: the time since the registration, or `before` for a retained value, and the
    /// sequence number.
    var mark: String {
        let time = isRetained ? "before" : "+\(Self.seconds(sinceRegistration)) s"
        return String(repeating: " ", count: max(0, 12 - time.utf8.count)) + time + "  #\(notification.sequence)"
    }

    /// Returns seconds with three decimal places.
    static func seconds(_ duration: Duration) -> String {
        let (seconds, attoseconds) = duration.components
        let fraction = String(attoseconds / 1_000_000_000_000_000)
        return "\(seconds)." + String(repeating: "0", count: 3 - fraction.utf8.count) + fraction
    }
}
