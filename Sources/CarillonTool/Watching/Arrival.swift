// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire

/// A notification that arrived, with what this process knows of its arrival.
struct Arrival {
    let notification: ArrivedNotification
    /// When it was posted where the service tells, otherwise when it arrived: microseconds since 1970.
    let time: Int64
    /// How long after the registration it came.
    let sinceRegistration: Duration
    let userInfo: [String: PropertyList]
    /// What the service tells besides, by the contract's keys.
    let details: [String: PropertyList]

    init(_ notification: ArrivedNotification, at now: Int64, sinceRegistration: Duration) {
        self.notification = notification
        self.sinceRegistration = sinceRegistration
        userInfo = notification.userInfo.decoded()
        details = notification.details?.decoded() ?? [:]
        time = if case .int64(let time)? = details[Detail.time.rawValue] { time } else { now }
    }

    /// Whether it is a value that was there before, as far as the service was asked to tell.
    var isRetained: Bool { details[Detail.retained.rawValue] == .boolean(true) }

    /// Where it stands from the registration on: its number, and how long after it, or that it was there before.
    var mark: String {
        let time = isRetained ? "before" : "+\(Self.seconds(sinceRegistration)) s"
        return String(repeating: " ", count: max(0, 12 - time.utf8.count)) + time + "  #\(notification.sequence)"
    }

    /// Seconds with three places.
    static func seconds(_ duration: Duration) -> String {
        let (seconds, attoseconds) = duration.components
        let fraction = String(attoseconds / 1_000_000_000_000_000)
        return "\(seconds)." + String(repeating: "0", count: 3 - fraction.utf8.count) + fraction
    }
}
