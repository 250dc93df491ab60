// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The bounded queue of messages for the broker, in order. A full queue drops the oldest messages, because newer ones
/// are worth more to a receiver that was away. Receivers notice the loss by the missing numbers.
struct ExportQueue {
    struct Limits: Equatable {
        var count = 10_000
        var byteCount = 16 << 20
    }

    struct Entry: Equatable {
        var message: OutwardMessage
        let topic: String
        /// Whether the message was sent, so that it may have arrived.
        var wasSent = false
        /// The evidence that this message is the cause of lost connections.
        var suspicion = 0
        /// Whether the message removes a value.
        var isRemoval: Bool { message.isRetained && message.payload.isEmpty }
    }

    let limits: Limits
    private var entries = Deque<Entry>()
    private var byteCountOfEntries = 0
    /// Entries that were sent on a connection that has ended. They are sent again, before all others. A full queue does
    /// not drop them, because they may have arrived. Their number is at most the window of the connections.
    private var returned = Deque<Entry>()
    private var byteCountOfReturned = 0

    init(limits: Limits) {
        self.limits = limits
    }

    var count: Int { returned.count + entries.count }
    var byteCount: Int { byteCountOfReturned + byteCountOfEntries }
    var first: Entry? { returned.first ?? entries.first }

    func neverFits(_ entry: Entry) -> Bool { entry.message.byteCount > limits.byteCount }

    /// - Returns: the dropped entries; this entry is one of them if it alone exceeds the limit.
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

    /// Restores an entry of an earlier bridge, behind all others.
    ///
    /// - Returns: the dropped entries, as ``append(_:)`` does.
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

    /// Puts back an entry that could not be sent, or may not have arrived.
    mutating func prepend(_ entry: Entry) {
        returned.prepend(entry)
        byteCountOfReturned += entry.message.byteCount
    }
}
