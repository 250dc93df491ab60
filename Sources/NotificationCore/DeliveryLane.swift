import Collections

/// How urgent what is due to a client is (M6). The more urgent goes first; within a lane order is global (D4).
///
/// The number is part of the recovery log's format.
public enum DeliveryLane: Int, CaseIterable, Comparable, Sendable {
    /// What was held and is due by now, before anything newer, whatever its mode (S2). The core sends it at once.
    case flushed = 0
    /// What the poster wants delivered immediately, and what a suspended client's observer does (S3).
    case immediate = 1
    case eventTracking = 2
    case modalPanel = 3
    case standard = 4

    init(_ mode: RunLoopMode) {
        switch mode {
        case .eventTracking: self = .eventTracking
        case .modalPanel: self = .modalPanel
        case .default: self = .standard
        }
    }

    public static func < (left: DeliveryLane, right: DeliveryLane) -> Bool {
        left.rawValue < right.rawValue
    }
}

/// Notifications that are due to one client in one lane, first in, first out.
struct DueQueue {
    struct Entry {
        let notification: Notification
        var observers: ObserverList
        let byteCount: Int
    }

    private var entries = Deque<Entry>()
    private(set) var byteCount = 0
    /// The greatest serial that was ever in it.
    private(set) var lastSerial: UInt64 = 0
    /// How many places the client has among the turns of this lane (``Turns``).
    var turns = 0

    var count: Int { entries.count }
    var isEmpty: Bool { entries.isEmpty }
    var first: Entry? { entries.first }

    var all: some Sequence<Entry> { entries }

    mutating func append(_ entry: Entry) {
        invariant(entry.notification.serial > lastSerial, "D4: within a lane order is global")
        lastSerial = entry.notification.serial
        entries.append(entry)
        byteCount += entry.byteCount
    }

    mutating func popFirst() -> Entry? {
        guard let entry = entries.popFirst() else { return nil }
        byteCount -= entry.byteCount
        return entry
    }

    mutating func removeAll() {
        entries.removeAll()
        byteCount = 0
    }

    /// Takes the observers out of everything; what has none left goes.
    mutating func remove(_ removed: Set<ObserverID>) {
        guard !isEmpty else { return }
        let rest = entries.compactMap { entry -> Entry? in
            var entry = entry
            guard let observers = entry.observers.removing(removed) else { return nil }
            entry.observers = observers
            return entry
        }
        entries = Deque(rest)
        byteCount = rest.reduce(0) { $0 + $1.byteCount }
    }
}

extension ObserverList {
    /// For observers that are at least one.
    init(_ ids: [ObserverID]) {
        self = ids.count == 1 ? .one(ids[0]) : .many(ids)
    }

    /// What is left without `removed`; nil when nothing is.
    func removing(_ removed: Set<ObserverID>) -> ObserverList? {
        switch self {
        case .one(let id): return removed.contains(id) ? nil : self
        case .many(let ids):
            let rest = ids.filter { !removed.contains($0) }
            return rest.isEmpty ? nil : ObserverList(rest)
        }
    }
}
