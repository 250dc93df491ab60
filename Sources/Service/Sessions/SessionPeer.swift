// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The state of another session: a connection of the system bus that has announced itself as the service of a session.
/// ``SystemBusSession`` uses it. In each direction, signals have sequence numbers and are acknowledged in windows.
final class SessionPeer {
    /// The unique name of its connection on the system bus.
    let name: UniqueName
    /// The user ID that the bus verified; nil until the bus has answered.
    var userID: UInt32?
    /// The features that the session supports beyond the first version of the protocol, from its `Understands` signal.
    var understands: Set<String> = []
    /// The time at which it left or lost its slot, in microseconds as ``Sessions/now``; nil while it has a slot, and
    /// before it has its first.
    var goneAt: Int64?
    /// The rate limit of its `Wants` and `Understands` signals, which may have long lists.
    var listLimit = RateLimit(perSecond: 5, burst: 20)
    /// The rate limit of answers to its `Here` broadcasts.
    var answers = RateLimit(perSecond: 1, burst: 2)

    // MARK: Outgoing

    /// An item in the queue of a session.
    enum Item {
        case notification(ExportedNotification)
        /// The end of the retained value of this key.
        case ended(NotificationKey)
    }

    /// The progress of a replay of this session's retained values to the other one (R8).
    enum Replay: Equatable {
        /// No replay is due.
        case done
        /// A replay is due. It starts when the queue is empty, so that no value precedes an older post of its name.
        case due
        /// The replay has sent the values up to the serial `after`, and continues up to the serial `through`.
        case begun(after: UInt64, through: UInt64)
    }

    /// The names that the session imports from this user, from its `Wants` signal.
    var wants: [NamePattern] = []
    /// The queue of signals to the session, with the window of unacknowledged ones.
    var queue = SessionSendQueue<Item>(SessionPeer.bounds)
    var replay = Replay.done
    /// The rate limit of replays to the session.
    var replayLimit = RateLimit(perSecond: 1, burst: 5)
    /// The timer that continues a replay, when the rate limit allows it or after other events were handled.
    var replayTimer: EventSource?
    /// Losses that have to be reported to the session by name.
    var losses = SessionLosses()
    /// The timer for acknowledgments. It runs while items wait for one, and after it the signals in flight are given
    /// up.
    var ackTimer: EventSource?
    /// The number of consecutive expirations of ``ackTimer``, with each of which its time doubles.
    var ackTimeouts: UInt32 = 0

    // MARK: Incoming

    /// The names wanted from the session that were last sent to it. Nil if it may not have them, so that they are sent
    /// again.
    var announced: [String]? = []
    /// The sequence number of its last signal.
    var lastNumber: UInt64 = 0
    /// The number of its notifications that were accepted: posted in this session, or part of a replay and known
    /// already.
    var received: UInt64 = 0
    /// The number of its notifications that were lost before they arrived here.
    var lostBeforeArrival: UInt64 = 0
    /// The source that sends the acknowledgment, after all signals that have arrived were handled.
    var confirmation: EventSource?
    /// The rate limit of requests for a replay of its values.
    var questions = RateLimit(perSecond: 1, burst: 5)
    /// The progress of its replays.
    var values = ReplayProgress()

    /// The limits of the window and the queue. With these windows, 64 sessions use at most 16 MiB of the 127 MiB that
    /// the bus keeps for a connection. A queued notification is stored once for all sessions.
    private static let bounds = SessionSendQueue<Item>.Bounds(
        window: (count: 64, bytes: 256 << 10), queue: (count: 4096, bytes: 4 << 20))

    init(_ name: UniqueName) {
        self.name = name
    }

    var understandsValues: Bool { understands.contains(UnderstandsSignal.values) }
    var understandsLosses: Bool { understands.contains(UnderstandsSignal.losses) }

    /// Whether items or values of a replay wait for an acknowledgment.
    var isBlocked: Bool {
        if case .begun = replay { return !queue.hasRoom }
        return queue.isBlocked
    }

    /// Discards the queue after the loss of the slot. The next signal, if the session gets a slot again, reports the
    /// loss.
    ///
    /// - Returns: the number of discarded notifications.
    func loseSlot() -> UInt64 {
        stop()
        announced = nil
        replay = .done
        return queue.clear()
    }

    /// Stops all timers of the session.
    func stop() { (confirmation, ackTimer, replayTimer) = (nil, nil, nil) }

    /// Discards large tables of a session without a slot, because many of these are remembered.
    func discardTables() {
        if wants.reduce(0, { $0 + Self.patternSize + $1.description.utf8.count }) > Self.maxBytesRemembered {
            wants = []
        }
        losses = SessionLosses()
    }

    /// The size of ``wants``, in bytes, up to which a session without a slot keeps it.
    private static let maxBytesRemembered = 1024
    /// The approximate memory of a pattern in addition to its text, in bytes.
    private static let patternSize = 64

    /// The session as the property `Sessions` shows it.
    var shown: [String: PropertyList] {
        var shown: [String: PropertyList] = [
            "name": .string(name.rawValue),
            "state": .string(userID == nil ? "asking" : isBlocked ? "waiting" : "open"),
            "queued": .uint32(UInt32(queue.waitingCount)), "sent": .uint64(queue.sent),
            "received": .uint64(received), "lost": .uint64(queue.lost &+ lostBeforeArrival),
            "wants": .array(wants.map { .string($0.description) }),
        ]
        if let userID { shown["uid"] = .uint32(userID) }
        return shown
    }
}

/// The counts of notifications that were lost in the queue to another session, by name and object, until a `Lost`
/// signal reports them. Above the maximum number of entries in that signal, further keys are counted together.
struct SessionLosses {
    /// A name and an object, compared byte by byte.
    private struct Key: Hashable {
        let name: ExactText
        let object: ExactText
    }

    private var counts: [Key: UInt64] = [:]
    /// The number of losses without an entry of their own. They are reported with an empty name.
    private var others: UInt64 = 0

    var isEmpty: Bool { counts.isEmpty && others == 0 }

    /// Counts a lost notification.
    mutating func add(_ notification: ExportedNotification) {
        let key = Key(name: ExactText(notification.name), object: ExactText(notification.object))
        if counts[key] != nil || counts.count < LostSignal.maxEntries - 1 {
            counts[key, default: 0] += 1
        } else {
            others += 1
        }
    }

    /// Removes and returns all losses, sorted by name and object.
    mutating func take() -> [LostSignal.Entry] {
        var entries = counts.map {
            LostSignal.Entry(name: $0.key.name.text, object: $0.key.object.text, count: $0.value)
        }.sorted { ($0.name, $0.object) < ($1.name, $1.object) }
        if others > 0 { entries.append(.init(name: "", object: "", count: others)) }
        self = SessionLosses()
        return entries
    }
}
