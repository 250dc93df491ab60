// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The queue of messages to one other session (G1). Method calls between users are denied, so the other side
/// acknowledges by signals.
///
/// Beyond a window of unacknowledged messages nothing is sent. Beyond a bound of the queue the oldest messages are
/// lost, and the next message reports their number. The bus may have discarded messages in flight. After a long time
/// without acknowledgment the driver therefore gives these up (``giveUp()``); from then on the queue sends one message
/// at a time, until something is acknowledged.
public struct SessionLine<Item> {
    /// The bounds of a queue.
    public struct Bounds: Sendable {
        /// The maximum number and size of messages in flight. When either is reached, nothing more is sent.
        public var window: (count: Int, bytes: Int)
        /// The maximum number and size of waiting messages.
        public var queue: (count: Int, bytes: Int)

        public init(window: (count: Int, bytes: Int), queue: (count: Int, bytes: Int)) {
            self.window = window
            self.queue = queue
        }
    }

    private let bounds: Bounds
    private var waiting = Deque<(item: Item, byteCount: Int, countsAsLoss: Bool)>()
    /// The size of the waiting messages, in bytes.
    public private(set) var waitingBytes = 0
    private var onTheWay = Deque<(number: UInt64, byteCount: Int)>()
    private var bytesOnTheWay = 0
    private var lastNumber: UInt64 = 0
    /// The number of losses that were not reported yet.
    private var unannounced: UInt64 = 0
    /// Whether nothing was acknowledged since ``giveUp()``.
    private var isInDoubt = false
    /// The number of messages that this queue has lost.
    public private(set) var lost: UInt64 = 0
    public private(set) var sent: UInt64 = 0

    public init(_ bounds: Bounds) {
        self.bounds = bounds
    }

    public var waitingCount: Int { waiting.count }

    /// Whether a message waits for the other side to acknowledge earlier ones.
    public var isBlocked: Bool { !waiting.isEmpty && !hasRoom }

    public var hasRoom: Bool {
        if isInDoubt { return onTheWay.isEmpty }
        // A single message goes, however large it is.
        return onTheWay.isEmpty
            || onTheWay.count < bounds.window.count && bytesOnTheWay < bounds.window.bytes
    }

    /// Appends a message.
    ///
    /// - Parameter countsAsLoss: whether a loss of the message is reported.
    /// - Returns: the messages that were lost because of the bounds, the oldest first.
    public mutating func append(_ item: Item, byteCount: Int, countsAsLoss: Bool = true) -> [Item] {
        waiting.append((item, byteCount, countsAsLoss))
        waitingBytes += byteCount
        var dropped: [Item] = []
        while waiting.count > 1, waiting.count > bounds.queue.count || waitingBytes > bounds.queue.bytes,
            let oldest = dropFirst()
        {
            dropped.append(oldest)
        }
        return dropped
    }

    /// Loses the oldest waiting message.
    ///
    /// - Returns: nil when none waits.
    public mutating func dropFirst() -> Item? {
        guard let oldest = waiting.popFirst() else { return nil }
        waitingBytes -= oldest.byteCount
        if oldest.countsAsLoss { noteLost(1) }
        return oldest.item
    }

    private mutating func noteLost(_ count: UInt64) {
        unannounced += count
        lost += count
    }

    /// Returns the number of unreported losses, which now count as reported.
    public mutating func takeUntold() -> UInt64 {
        defer { unannounced = 0 }
        return unannounced
    }

    /// Takes the next message, if it may be sent.
    ///
    /// - Returns: the message, its number, and the number of unreported losses before it; nil when nothing may be sent.
    public mutating func next() -> (item: Item, number: UInt64, lost: UInt64)? {
        guard hasRoom, let (item, byteCount, _) = waiting.popFirst() else { return nil }
        waitingBytes -= byteCount
        return (item, send(byteCount), takeUntold())
    }

    /// Numbers a message that is not in the queue and goes before the queued ones.
    ///
    /// - Returns: its number; nil when nothing may be sent.
    public mutating func next(byteCount: Int) -> UInt64? { hasRoom ? send(byteCount) : nil }

    /// Numbers the last message of all, which may be sent regardless of the window.
    public mutating func last(byteCount: Int) -> UInt64 { send(byteCount) }

    private mutating func send(_ byteCount: Int) -> UInt64 {
        lastNumber += 1
        onTheWay.append((lastNumber, byteCount))
        bytesOnTheWay += byteCount
        sent += 1
        return lastNumber
    }

    /// Takes the acknowledgment of all messages up to a number.
    ///
    /// - Returns: false for a number that was never given.
    public mutating func confirm(upTo number: UInt64) -> Bool {
        guard number <= lastNumber else { return false }
        while let first = onTheWay.first, first.number <= number {
            bytesOnTheWay -= first.byteCount
            _ = onTheWay.popFirst()
            isInDoubt = false
        }
        return true
    }

    /// Loses all waiting messages; the next message reports them.
    ///
    /// - Returns: the number of losses that are reported.
    @discardableResult
    public mutating func clear() -> UInt64 {
        let before = lost
        while dropFirst() != nil {}
        waiting = Deque()
        return lost - before
    }

    /// Gives up the messages in flight, which may be lost, because nothing was acknowledged for long.
    public mutating func giveUp() {
        onTheWay = Deque()
        bytesOnTheWay = 0
        isInDoubt = true
    }
}
