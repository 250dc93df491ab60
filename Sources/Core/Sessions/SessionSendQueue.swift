// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The outgoing queue to one other session of the machine (G1), with a window of unacknowledged messages. The service
/// has one for each session on the system bus. The bus denies method calls between users, so the other session
/// acknowledges by signals that name the number of a message.
///
/// - **Window**: when it is full, nothing is sent until messages are acknowledged.
/// - **Bound**: when the queue is full, the oldest messages are lost. The next message reports their number.
/// - **Recovery**: the bus may have discarded messages in flight, and their acknowledgment then never comes. After a
///   long time without one, the driver calls ``giveUp()``, which empties the window. From then on the queue sends one
///   message at a time, until something is acknowledged.
public struct SessionSendQueue<Item> {
    /// The limits of a queue.
    public struct Bounds: Sendable {
        /// The maximum number, and size in bytes, of messages in flight. When either is reached, nothing more is sent.
        /// The last message may exceed the size.
        public var window: (count: Int, bytes: Int)
        /// The maximum number, and size in bytes, of waiting messages. A single message may exceed the size.
        public var queue: (count: Int, bytes: Int)

        public init(window: (count: Int, bytes: Int), queue: (count: Int, bytes: Int)) {
            self.window = window
            self.queue = queue
        }
    }

    private let bounds: Bounds
    /// The waiting messages, the oldest first.
    private var waiting = Deque<(item: Item, byteCount: Int, countsAsLoss: Bool)>()
    /// The size of the waiting messages, in bytes.
    public private(set) var waitingBytes = 0
    /// The messages in flight, the oldest first.
    private var inFlight = Deque<(number: UInt64, byteCount: Int)>()
    /// The size of the messages in flight, in bytes.
    private var bytesInFlight = 0
    /// The number of the last message that was sent.
    private var lastNumber: UInt64 = 0
    /// The number of losses that no message has reported yet.
    private var unreported: UInt64 = 0
    /// Whether nothing was acknowledged since ``giveUp()``, so that messages are sent one at a time.
    private var sendsSingly = false
    /// The number of lost messages so far, without messages appended with `countsAsLoss` false.
    public private(set) var lost: UInt64 = 0
    /// The number of messages that were sent so far.
    public private(set) var sent: UInt64 = 0

    public init(_ bounds: Bounds) {
        self.bounds = bounds
    }

    public var waitingCount: Int { waiting.count }

    /// Whether a message waits and the window is full.
    public var isBlocked: Bool { !waiting.isEmpty && !hasRoom }

    /// Whether the window allows another message.
    public var hasRoom: Bool {
        if sendsSingly { return inFlight.isEmpty }
        // When nothing is in flight, a message of any size is sent.
        return inFlight.isEmpty
            || inFlight.count < bounds.window.count && bytesInFlight < bounds.window.bytes
    }

    /// Appends a message, and loses the oldest waiting ones beyond the limits of the queue.
    ///
    /// - Parameter countsAsLoss: whether the loss of the message is counted and reported: true for notifications, false
    ///   for reports that a value has ended.
    /// - Returns: the lost messages, the oldest first.
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
    /// - Returns: the message; nil when none waits.
    public mutating func dropFirst() -> Item? {
        guard let oldest = waiting.popFirst() else { return nil }
        waitingBytes -= oldest.byteCount
        if oldest.countsAsLoss { noteLost(1) }
        return oldest.item
    }

    /// Counts losses that the next message is to report.
    private mutating func noteLost(_ count: UInt64) {
        unreported += count
        lost += count
    }

    /// Returns the number of unreported losses, which now count as reported.
    public mutating func takeUnreported() -> UInt64 {
        defer { unreported = 0 }
        return unreported
    }

    /// Takes the next waiting message, if the window allows it. It counts as sent now.
    ///
    /// - Returns: the message, its number, and the number of unreported losses, which the driver sends with it; nil
    ///   when nothing may be sent.
    public mutating func next() -> (item: Item, number: UInt64, lost: UInt64)? {
        guard hasRoom, let (item, byteCount, _) = waiting.popFirst() else { return nil }
        waitingBytes -= byteCount
        return (item, send(byteCount), takeUnreported())
    }

    /// Counts a message as sent that is not in the queue and goes before the queued ones.
    ///
    /// - Returns: its number; nil when the window is full.
    public mutating func next(byteCount: Int) -> UInt64? { hasRoom ? send(byteCount) : nil }

    /// Counts the very last message as sent, which may exceed the window: the report of losses when the service ends.
    ///
    /// - Returns: its number.
    public mutating func last(byteCount: Int) -> UInt64 { send(byteCount) }

    /// Assigns the next number to a message that is sent now.
    private mutating func send(_ byteCount: Int) -> UInt64 {
        lastNumber += 1
        inFlight.append((lastNumber, byteCount))
        bytesInFlight += byteCount
        sent += 1
        return lastNumber
    }

    /// Handles the acknowledgment of all messages up to a number.
    ///
    /// - Returns: false for a number that was not assigned yet.
    public mutating func confirm(upTo number: UInt64) -> Bool {
        guard number <= lastNumber else { return false }
        while let first = inFlight.first, first.number <= number {
            bytesInFlight -= first.byteCount
            _ = inFlight.popFirst()
            sendsSingly = false
        }
        return true
    }

    /// Loses all waiting messages. The next message reports them.
    ///
    /// - Returns: the number of losses that count.
    @discardableResult
    public mutating func clear() -> UInt64 {
        let before = lost
        while dropFirst() != nil {}
        waiting = Deque()
        return lost - before
    }

    /// Empties the window, because nothing was acknowledged for a long time: the messages in flight may be lost. They
    /// are not counted as lost, as they may also have arrived.
    public mutating func giveUp() {
        inFlight = Deque()
        bytesInFlight = 0
        sendsSingly = true
    }
}
