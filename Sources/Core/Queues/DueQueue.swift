// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The queue of notifications that are due to one client in one lane, first in, first out.
struct DueQueue {
    struct Entry {
        let notification: Notification
        var observers: ObserverList
        /// The size that counts against the limits, in bytes. It includes the list of observers, however many other
        /// entries share that list.
        var byteCount: Int { notification.byteCount + observers.byteCount }
        /// The size of the entry on the bus, in bytes.
        var carriedBytes: Int { notification.byteCount + 8 * observers.count }
    }

    private let meter: StepMeter
    private var entries = Deque<Entry>()
    private(set) var byteCount = 0
    /// The greatest serial that was ever in the queue.
    private(set) var lastSerial: UInt64 = 0
    /// The number of flushed entries (``DeliveryQueue/flush()``). They are the oldest, and go together with the
    /// formerly held ones.
    private(set) var flushedCount = 0
    /// The number of the client's scheduled sends in this lane (``SendSchedule``), without tombstones.
    var scheduledCount = 0
    /// The number of the client's tombstones there, for notifications that went in a batch with others.
    var tombstones = 0

    init(meter: StepMeter) {
        self.meter = meter
    }

    var count: Int { entries.count }
    var isEmpty: Bool { entries.isEmpty }
    var first: Entry? { entries.first }

    var all: some Sequence<Entry> { entries }

    /// Whether the queue has the notification with this serial. O(log ``count``).
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

    /// The number of entries that were not flushed.
    var ownCount: Int { entries.count - flushedCount }
    /// The first entry, if it was flushed; and the first entry that was not flushed.
    var firstFlushed: Entry? { flushedCount > 0 ? entries.first : nil }
    var firstOwn: Entry? { flushedCount < entries.count ? entries[flushedCount] : nil }

    /// Flushes the present entries: they go together with the formerly held ones.
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

    /// Removes the observers from all entries, and the entries that have no observers left.
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
