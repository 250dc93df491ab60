// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonWire

/// An event besides notifications that `observe`, `monitor` and `wait` print with `--json`, and that `--record` writes.
/// It is an object with the member `event`, where notifications have a `name`.
enum ObservationEvent {
    /// The service has reported the loss of at most `count` notifications for this process.
    case dropped(count: UInt64, reason: String)
    /// The sequence of notifications lacks `count` numbers.
    case missing(count: UInt64)
    /// A message of the service could not be decoded.
    case undecodable(reason: String)
    /// The service has ended, or the connection to it.
    case serviceGone
    /// A service has registered the observers again.
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

    /// Returns an event as a JSON object; `members` are JSON texts.
    private func object(_ event: String, _ members: (key: String, value: String)...) -> String {
        PropertyListJSON.object([("event", JSON.quoted(event))] + members)
    }
}
