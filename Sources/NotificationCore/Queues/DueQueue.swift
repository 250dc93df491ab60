import Collections

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
