// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Notifications that are due to one client in one lane, first in, first out.
struct DueQueue {
    struct Entry {
        let notification: Notification
        var observers: ObserverList
        /// What it counts against the limits: also the list, however many others have the same one.
        var byteCount: Int { notification.byteCount + observers.byteCount }
        /// What the bus carries of it.
        var carriedBytes: Int { notification.byteCount + 8 * observers.count }
    }

    private let meter: StepMeter
    private var entries = Deque<Entry>()
    private(set) var byteCount = 0
    /// The greatest serial that was ever in it.
    private(set) var lastSerial: UInt64 = 0
    /// How many of the oldest of it were flushed (``DeliveryQueue/flush()``): they go with what was held.
    private(set) var flushedCount = 0
    /// How many places the client has among the turns of this lane (``SendSchedule``).
    var turns = 0
    /// How many places it has there besides, for what went along with another.
    var voidTurns = 0

    init(meter: StepMeter) {
        self.meter = meter
    }

    var count: Int { entries.count }
    var isEmpty: Bool { entries.isEmpty }
    var first: Entry? { entries.first }

    var all: some Sequence<Entry> { entries }

    /// Whether it has the notification with this serial. O(log ``count``).
    func contains(_ serial: UInt64) -> Bool {
        var (low, high) = (0, entries.count)
        while low < high {
            let middle = (low + high) / 2
            if entries[middle].notification.serial < serial { low = middle + 1 } else { high = middle }
        }
        return low < entries.count && entries[low].notification.serial == serial
    }

    func count(where isWanted: (Notification) -> Bool) -> Int {
        entries.indices.count { isWanted(entries[$0].notification) }
    }

    mutating func append(_ entry: Entry) {
        invariant(entry.notification.serial > lastSerial, "D4: within a lane order is global")
        lastSerial = entry.notification.serial
        var entry = entry
        entry.observers = entry.observers.shared(with: entries.last?.observers)
        entries.append(entry)
        byteCount += entry.byteCount
    }

    /// Those that were not flushed.
    var ownCount: Int { entries.count - flushedCount }
    /// The first, if it was flushed; and the first that was not.
    var firstFlushed: Entry? { flushedCount > 0 ? entries.first : nil }
    var firstOwn: Entry? { flushedCount < entries.count ? entries[flushedCount] : nil }

    /// From now on the present entries go with those that were held.
    mutating func flush() { flushedCount = entries.count }

    mutating func popFirst() -> Entry? {
        guard let entry = entries.popFirst() else { return nil }
        byteCount -= entry.byteCount
        if flushedCount > 0 { flushedCount -= 1 }
        return entry
    }

    mutating func removeAll() {
        entries.removeAll()
        (byteCount, flushedCount) = (0, 0)
    }

    /// Takes the observers out of everything; what has none left goes.
    mutating func remove(_ removed: Set<ObserverID>) {
        meter.count(entries.count)
        var taking = ObserverList.Removal(removed, meter: meter)
        let changed = entries.indices.first { taking(entries[$0].observers) != entries[$0].observers }
        guard let changed else { return }
        meter.count(entries.count)
        var rest = Array(entries.prefix(changed))
        var flushed = flushedCount
        for place in changed..<entries.count {
            var entry = entries[place]
            if let observers = taking(entry.observers) {
                entry.observers = observers
                rest.append(entry)
            } else if place < flushedCount {
                flushed -= 1
            }
        }
        flushedCount = flushed
        entries = Deque(rest)
        byteCount = rest.reduce(0) { $0 + $1.byteCount }
    }
}
