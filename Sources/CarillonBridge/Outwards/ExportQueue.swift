// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The bounded queue of messages that wait to be sent to the broker, in order. ``Exporter`` uses it. A full queue drops
/// the oldest messages, because newer ones are worth more to a receiver that was away. Receivers notice the loss by
/// missing sequence numbers.
struct ExportQueue {
    /// The maximum number of messages, and their maximum size in bytes.
    struct Limits: Equatable {
        var count = 10_000
        var byteCount = 16 << 20
    }

    /// A message in the queue, with its topic.
    struct Entry: Equatable {
        var message: OutwardMessage
        let topic: String
        /// Whether the message was sent on an earlier connection, so that it may have arrived.
        var wasSent = false
        /// The evidence that this message is the reason why the broker ended connections
        /// (``Exporter/connectionEnded(because:)``).
        var suspicion = 0
        /// Whether the message removes a value from the broker.
        var isRemoval: Bool { message.isRetained && message.payload.isEmpty }
    }

    let limits: Limits
    /// The messages that were never sent; only these count for the limits.
    private var entries = Deque<Entry>()
    private var byteCountOfEntries = 0
    /// Messages that were sent on a connection that has ended, or could not be sent. They are sent before all others. A
    /// full queue does not drop them, because they may have arrived. Their number is at most the in-flight limit.
    private var returned = Deque<Entry>()
    private var byteCountOfReturned = 0

    init(limits: Limits) {
        self.limits = limits
    }

    /// The number of messages.
    var count: Int { returned.count + entries.count }
    /// Their approximate size, in bytes.
    var byteCount: Int { byteCountOfReturned + byteCountOfEntries }
    /// The next message.
    var first: Entry? { returned.first ?? entries.first }

    /// Whether a message alone exceeds the limit.
    func neverFits(_ entry: Entry) -> Bool { entry.message.byteCount > limits.byteCount }

    /// Appends a message, and drops the oldest ones beyond the limits.
    ///
    /// - Returns: the dropped entries. This entry is one of them if it alone exceeds the limit.
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

    /// Restores an entry that an earlier bridge has saved, in the saved order.
    ///
    /// - Returns: the dropped entries, as ``append(_:)`` does.
    mutating func restore(_ entry: Entry) -> [Entry] {
        guard entry.wasSent else { return append(entry) }
        returned.append(entry)
        byteCountOfReturned += entry.message.byteCount
        return []
    }

    /// All messages, in order.
    var all: [Entry] { Array(returned) + Array(entries) }

    /// Removes and returns the next message.
    mutating func popFirst() -> Entry? {
        if let entry = returned.popFirst() {
            byteCountOfReturned -= entry.message.byteCount
            return entry
        }
        guard let entry = entries.popFirst() else { return nil }
        byteCountOfEntries -= entry.message.byteCount
        return entry
    }

    /// Puts a message back to the head of the queue: it could not be sent, or may not have arrived.
    mutating func prepend(_ entry: Entry) {
        returned.prepend(entry)
        byteCountOfReturned += entry.message.byteCount
    }
}
