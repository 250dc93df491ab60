// SPDX-License-Identifier: Apache-2.0
import Collections

/// What waits for the broker, in order and bounded: when it is full the oldest are lost, as what is newer is worth more to
/// whoever was away, and their numbers are missing there.
struct ExportQueue {
    struct Limits: Equatable {
        var count = 10_000
        var byteCount = 16 << 20
    }

    struct Entry: Equatable {
        let message: OutwardMessage
        let topic: String
        /// How much speaks for this message as the cause of lost connections.
        var suspicion = 0
    }

    let limits: Limits
    private var entries = Deque<Entry>()
    private(set) var byteCount = 0

    init(limits: Limits) {
        self.limits = limits
    }

    var count: Int { entries.count }
    var first: Entry? { entries.first }

    /// - Returns: those that had to go; that may be this one, when it alone is beyond the limit.
    mutating func append(_ entry: Entry) -> [Entry] {
        entries.append(entry)
        byteCount += entry.message.byteCount
        var lost: [Entry] = []
        while entries.count > limits.count || byteCount > limits.byteCount, let first = popFirst() {
            lost.append(first)
        }
        return lost
    }

    var all: [Entry] { Array(entries) }

    mutating func popFirst() -> Entry? {
        guard let entry = entries.popFirst() else { return nil }
        byteCount -= entry.message.byteCount
        return entry
    }

    /// Puts one back that could not leave.
    mutating func prepend(_ entry: Entry) {
        entries.prepend(entry)
        byteCount += entry.message.byteCount
    }
}
