// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Another session, which announced itself on the system bus.
final class SessionPeer {
    let name: UniqueName
    /// The user ID that the bus verified; nil until the bus has answered.
    var userID: UInt32?
    /// The features of the session beyond the first version of the contract.
    var understands: Set<String> = []
    /// The time at which it left or lost its slot, in microseconds; nil while it has one.
    var goneAt: Int64?
    /// The rate limit of lists of wanted names and features: a list may be long, and is examined each time.
    var words = RateLimit(perSecond: 5, burst: 20)
    /// The rate limit of answers to its broadcasts.
    var answers = RateLimit(perSecond: 1, burst: 2)

    // MARK: Outgoing

    /// An item in the queue of a session.
    enum Item {
        case notification(ExportedNotification)
        /// The end of a value.
        case ended(NotificationKey)
    }

    /// The progress of a replay of values to the session (R8).
    enum Telling: Equatable {
        case done
        /// The replay starts when the queue is empty, so that no value precedes an older post of its name.
        case due
        /// The replay has sent the values up to the first serial, and continues up to the second.
        case begun(after: UInt64, through: UInt64)
    }

    /// The names that it takes from this user.
    var wants: [NamePattern] = []
    var line = SessionLine<Item>(SessionPeer.bounds)
    var telling = Telling.done
    var tellings = RateLimit(perSecond: 1, burst: 5)
    /// Continues a replay later, where many values are not for the session, or it has asked often.
    var goingOn: EventSource?
    /// Losses that are to be reported to it by name.
    var losses = SessionLosses()
    /// Runs while nothing is acknowledged and items wait.
    var doubt: EventSource?
    /// The number of consecutive expirations of ``doubt``.
    var doubts: UInt32 = 0

    // MARK: Incoming

    /// The wanted names that were last sent to it; nil where that is not known.
    var told: [String]? = []
    /// The sequence number of its last signal.
    var lastNumber: UInt64 = 0
    var received: UInt64 = 0
    /// The number of notifications lost on the way from it.
    var lostThere: UInt64 = 0
    /// Sends the acknowledgement, when all messages at hand have been handled.
    var confirmation: EventSource?
    /// The rate limit of requests for a replay of its values.
    var questions = RateLimit(perSecond: 1, burst: 5)
    /// The progress of the replay of its values.
    var values = ToldValues()

    /// The limits of the window and the queue. Windows keep the bus's part small: 64 sessions take 16 MiB of its 127
    /// MiB per connection. Queued notifications are shared among the queues of all sessions.
    private static let bounds = SessionLine<Item>.Bounds(
        window: (count: 64, bytes: 256 << 10), queue: (count: 4096, bytes: 4 << 20))

    init(_ name: UniqueName) {
        self.name = name
    }

    var understandsValues: Bool { understands.contains(UnderstandsSignal.values) }
    var understandsLosses: Bool { understands.contains(UnderstandsSignal.losses) }

    /// Whether items wait for an acknowledgement.
    var isBlocked: Bool {
        if case .begun = telling { return !line.hasRoom }
        return line.isBlocked
    }

    /// Drops the queue after the loss of the slot. Later notifications count anew when the session has a slot again.
    ///
    /// - Returns: the number of dropped notifications.
    func leavePlace() -> UInt64 {
        stop()
        told = nil
        telling = .done
        return line.clear()
    }

    /// Stops all timers.
    func stop() { (confirmation, doubt, goingOn) = (nil, nil, nil) }

    /// Drops large tables, as many sessions are remembered without a slot.
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

/// Losses on the way to another session, by name and object, until they are reported. Beyond a number of names, the
/// others are counted together.
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

    /// Removes and returns all losses, which are reported now.
    mutating func take() -> [LostSignal.Entry] {
        var entries = counts.map {
            LostSignal.Entry(name: $0.key.name.text, object: $0.key.object.text, count: $0.value)
        }.sorted { ($0.name, $0.object) < ($1.name, $1.object) }
        if others > 0 { entries.append(.init(name: "", object: "", count: others)) }
        self = SessionLosses()
        return entries
    }
}
