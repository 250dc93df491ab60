// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonWire

/// An event that `observe --json` prints beside notifications: an object with the member `event`, where notifications
/// have a `name`.
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
