// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Another session, as it announced itself on the system bus.
final class SessionPeer {
    let name: UniqueName
    /// As the bus verified it; nil until it has answered.
    var userID: UInt32?
    /// The features that it understands beyond the first version of the contract.
    var understands: Set<String> = []
    /// When it left, or lost its place, in microseconds; nil while it has one.
    var goneAt: Int64?
    /// Lists that it sends of what it wants and understands: one may be long, and is looked at each time.
    var words = RateLimit(perSecond: 5, burst: 20)
    /// Broadcasts that it is answered.
    var answers = RateLimit(perSecond: 1, burst: 2)

    // MARK: Outgoing

    /// An entry of its line.
    enum Item {
        case notification(ExportedNotification)
        /// A value is none any more.
        case ended(NotificationKey)
    }

    /// How far it has been told the values that it may have (R8).
    enum Telling: Equatable {
        case done
        /// They are told when nothing waits any more, so that none comes before an older post of its name.
        case due
        /// Those with serials up to one were told, those up to another follow.
        case begun(after: UInt64, through: UInt64)
    }

    /// What it takes from this user.
    var wants: [NamePattern] = []
    var line = SessionLine<Item>(SessionPeer.bounds)
    var telling = Telling.done
    var tellings = RateLimit(perSecond: 1, burst: 5)
    /// Goes on with values: later, where many are not for it, or it has asked often.
    var goingOn: EventSource?
    /// The losses that it is still to be told by their names.
    var losses = SessionLosses()
    /// Runs while nothing is confirmed and something waits.
    var doubt: EventSource?
    /// How often in a row nothing was.
    var doubts: UInt32 = 0

    // MARK: Incoming

    /// What it was told that this session takes from its user; nil where that is not known.
    var told: [String]? = []
    /// The number of the last that came from there.
    var lastNumber: UInt64 = 0
    var received: UInt64 = 0
    /// Lost on the way from there.
    var lostThere: UInt64 = 0
    /// Confirms what came, when all that is at hand has been taken.
    var confirmation: EventSource?
    /// How often it is asked for its values again, where some may be missing.
    var questions = RateLimit(perSecond: 1, burst: 5)
    /// How far it has told its values.
    var values = ToldValues()

    /// A window keeps the bus's part small: 64 sessions are 16 MiB of its 127 for a connection. What waits is shared among
    /// all that wait for it.
    private static let bounds = SessionLine<Item>.Bounds(
        window: (count: 64, bytes: 256 << 10), queue: (count: 4096, bytes: 4 << 20))

    init(_ name: UniqueName) {
        self.name = name
    }

    var understandsValues: Bool { understands.contains(UnderstandsSignal.values) }
    var understandsLosses: Bool { understands.contains(UnderstandsSignal.losses) }

    /// Whether something waits for the other side to confirm.
    var isBlocked: Bool {
        if case .begun = telling { return !line.hasRoom }
        return line.isBlocked
    }

    /// All that waits for it is lost, and what it is sent later is counted from the beginning of its next stay.
    ///
    /// - Returns: how many notifications.
    func leavePlace() -> UInt64 {
        stop()
        told = nil
        telling = .done
        return line.clear()
    }

    /// Nothing is sent, or awaited, any more.
    func stop() { (confirmation, doubt, goingOn) = (nil, nil, nil) }

    /// Drops what takes much room: many sessions are remembered without a place.
    func forgetMuch() {
        if wants.reduce(0, { $0 + Self.patternSize + $1.description.utf8.count }) > Self.maxBytesRemembered {
            wants = []
        }
        losses = SessionLosses()
    }

    private static let maxBytesRemembered = 1024
    private static let patternSize = 64

    var shown: [String: PropertyList] {
        var shown: [String: PropertyList] = [
            "name": .string(name.rawValue),
            "state": .string(userID == nil ? "asking" : isBlocked ? "waiting" : "open"),
            "queued": .uint32(UInt32(line.waitingCount)), "sent": .uint64(line.sent),
            "received": .uint64(received), "lost": .uint64(line.lost &+ lostThere),
            "wants": .array(wants.map { .string($0.description) }),
        ]
        if let userID { shown["uid"] = .uint32(userID) }
        return shown
    }
}

/// Losses on the way to another session, by name and object, until they are told; of ever other ones some together.
struct SessionLosses {
    private struct Key: Hashable {
        let name: ExactText
        let object: ExactText
    }

    private var counts: [Key: UInt64] = [:]
    private var others: UInt64 = 0

    var isEmpty: Bool { counts.isEmpty && others == 0 }

    mutating func add(_ notification: ExportedNotification) {
        let key = Key(name: ExactText(notification.name), object: ExactText(notification.object))
        if counts[key] != nil || counts.count < LostSignal.maxEntries - 1 {
            counts[key, default: 0] += 1
        } else {
            others += 1
        }
    }

    /// All of them, which are told now.
    mutating func take() -> [LostSignal.Entry] {
        var entries = counts.map {
            LostSignal.Entry(name: $0.key.name.text, object: $0.key.object.text, count: $0.value)
        }.sorted { ($0.name, $0.object) < ($1.name, $1.object) }
        if others > 0 { entries.append(.init(name: "", object: "", count: others)) }
        self = SessionLosses()
        return entries
    }
}
