// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The queue of notifications that are due to one client in one lane, first in, first out. A client has one for each
/// ``DeliveryLane``; ``DeliveryQueue`` owns them.
///
/// A notification is due when the client may get it as soon as the send schedule reaches it. An entry is **flushed**
/// when notifications that were held for the suspended client become due. The flushed entries of all lanes and the
/// formerly held notifications are then sent together, in the order of their serials, before anything newer. A serial
/// is the position of a notification among all posts.
struct DueQueue {
    /// A notification with the observers of the client that are to get it.
    struct Entry {
        let notification: Notification
        var observers: ObserverList
        /// The size that counts against the limits, in bytes. The list of observers counts in full, even if other
        /// entries share its memory.
        var byteCount: Int { notification.byteCount + observers.byteCount }
        /// The size of the entry on the bus, in bytes.
        var carriedBytes: Int { notification.byteCount + 8 * observers.count }
    }

    /// Counts the elementary steps of each operation, in test builds.
    private let meter: StepMeter
    private var entries = Deque<Entry>()
    /// The size of all entries that counts against the limits, in bytes.
    private(set) var byteCount = 0
    /// The greatest serial that was ever in the queue.
    private(set) var lastSerial: UInt64 = 0
    /// The number of flushed entries (``DeliveryQueue/flush()``). They are the oldest entries of the queue.
    private(set) var flushedCount = 0
    /// The number of sends of the client in the send schedule of this lane (``SendSchedule``), without tombstones.
    var scheduledCount = 0
    /// The number of tombstones of the client in that schedule. A tombstone remains of a send whose notification went
    /// in one message with an earlier one.
    var tombstones = 0

    init(meter: StepMeter) {
        self.meter = meter
    }

    var count: Int { entries.count }
    var isEmpty: Bool { entries.isEmpty }
    var first: Entry? { entries.first }

    /// All entries, the oldest first.
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

    /// Counts the notifications that satisfy `isWanted`.
    func count(where isWanted: (Notification) -> Bool) -> Int {
        entries.indices.count { isWanted(entries[$0].notification) }
    }

    /// Adds an entry. Its serial is greater than all before it. An equal list of observers shares the memory of the
    /// last entry.
    mutating func append(_ entry: Entry) {
        invariant(entry.notification.serial > lastSerial, "D4: within a lane order is global")
        lastSerial = entry.notification.serial
        var entry = entry
        entry.observers = entry.observers.shared(with: entries.last?.observers)
        entries.append(entry)
        byteCount += entry.byteCount
    }

    /// The number of entries that were not flushed.
    var unflushedCount: Int { entries.count - flushedCount }
    /// The first entry if it is flushed; otherwise nil.
    var firstFlushed: Entry? { flushedCount > 0 ? entries.first : nil }
    /// The first entry that is not flushed.
    var firstUnflushed: Entry? { flushedCount < entries.count ? entries[flushedCount] : nil }

    /// Marks all present entries as flushed.
    mutating func flush() { flushedCount = entries.count }

    /// Takes the first entry, flushed or not.
    mutating func popFirst() -> Entry? {
        guard let entry = entries.popFirst() else { return nil }
        byteCount -= entry.byteCount
        if flushedCount > 0 { flushedCount -= 1 }
        return entry
    }

    /// Removes all entries. The sends in the schedule stay, and send nothing.
    mutating func removeAll() {
        entries.removeAll()
        (byteCount, flushedCount) = (0, 0)
    }

    /// Removes observers from all entries. An entry without observers is removed.
    mutating func remove(_ removed: Set<ObserverID>) {
        meter.count(entries.count)
        var taking = ObserverList.Removal(removed, meter: meter)
        // Usually no entry has a removed observer, and then nothing is copied.
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
