// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire

/// A notification that arrived, with the facts about its arrival that this process knows.
struct Arrival {
    let notification: ArrivedNotification
    /// The time of the post if the service sends it, otherwise of the arrival, in microseconds since 1970.
    let time: Int64
    /// The time between the registration and the arrival.
    let sinceRegistration: Duration
    let userInfo: [String: PropertyList]
    /// The details that the service sends, by the keys of the contract.
    let details: [String: PropertyList]

    init(_ notification: ArrivedNotification, at now: Int64, sinceRegistration: Duration) {
        self.notification = notification
        self.sinceRegistration = sinceRegistration
        userInfo = notification.userInfo.decoded()
        details = notification.details?.decoded() ?? [:]
        time = if case .int64(let time)? = details[Detail.time.rawValue] { time } else { now }
    }

    /// Whether it is a value that existed before, if the service was asked for that detail.
    var isRetained: Bool { details[Detail.retained.rawValue] == .boolean(true) }

    /// Its position after the registration: its number, and the time since the registration, or that it existed before.
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
