// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// What waits for the broker, in order and bounded: when it is full the oldest are lost, as what is newer is worth more to
/// whoever was away, and their numbers are missing there.
struct ExportQueue {
    struct Limits: Equatable {
        var count = 10_000
        var byteCount = 16 << 20
    }

    struct Entry: Equatable {
        var message: OutwardMessage
        let topic: String
        /// Whether it was sent, so that it may have arrived.
        var wasSent = false
        /// How much speaks for this message as the cause of lost connections.
        var suspicion = 0
        /// Whether it says that a value is gone.
        var isRemoval: Bool { message.isRetained && message.payload.isEmpty }
    }

    let limits: Limits
    private var entries = Deque<Entry>()
    private var byteCountOfEntries = 0
    /// Entries that were sent on a connection that has ended. They are sent again, ahead of all others. They are not lost for
    /// want of room, as they may have arrived; there are as many as the window of the connections at most.
    private var returned = Deque<Entry>()
    private var byteCountOfReturned = 0

    init(limits: Limits) {
        self.limits = limits
    }

    var count: Int { returned.count + entries.count }
    var byteCount: Int { byteCountOfReturned + byteCountOfEntries }
    var first: Entry? { returned.first ?? entries.first }

    func neverFits(_ entry: Entry) -> Bool { entry.message.byteCount > limits.byteCount }

    /// - Returns: those that had to go; that may be this one, when it alone is beyond the limit.
    mutating func append(_ entry: Entry) -> [Entry] {
        entries.append(entry)
        byteCountOfEntries += entry.message.byteCount
        var lost: [Entry] = []
        while entries.count > limits.count || byteCountOfEntries > limits.byteCount, let first = entries.popFirst() {
            byteCountOfEntries -= first.message.byteCount
            lost.append(first)
        }
        return lost
    }

    /// Takes an entry that an earlier bridge had, behind all others.
    ///
    /// - Returns: as ``append(_:)``.
    mutating func restore(_ entry: Entry) -> [Entry] {
        guard entry.wasSent else { return append(entry) }
        returned.append(entry)
        byteCountOfReturned += entry.message.byteCount
        return []
    }

    var all: [Entry] { Array(returned) + Array(entries) }

    mutating func popFirst() -> Entry? {
        if let entry = returned.popFirst() {
            byteCountOfReturned -= entry.message.byteCount
            return entry
        }
        guard let entry = entries.popFirst() else { return nil }
        byteCountOfEntries -= entry.message.byteCount
        return entry
    }

    /// Puts an entry back that could not leave, or may not have arrived.
    mutating func prepend(_ entry: Entry) {
        returned.prepend(entry)
        byteCountOfReturned += entry.message.byteCount
    }
}
