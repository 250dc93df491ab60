// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// What goes to one other session (G1), as far as that takes it. Method calls are denied between users, so the other side
/// says by signals how far it has come.
///
/// Past a window that is not confirmed nothing is sent; past a bound of what waits the oldest are lost, and the next one
/// tells how many. A bus may have dropped what is on its way, so where nothing is confirmed for long the line is tried
/// again, with one at a time, until something is.
public struct SessionLine<Item> {
    /// How much it takes.
    public struct Bounds: Sendable {
        /// On the way: so many, or so many bytes.
        public var window: (count: Int, bytes: Int)
        /// Waiting.
        public var queue: (count: Int, bytes: Int)

        public init(window: (count: Int, bytes: Int), queue: (count: Int, bytes: Int)) {
            self.window = window
            self.queue = queue
        }
    }

    private let bounds: Bounds
    private var waiting = Deque<(item: Item, byteCount: Int, countsAsLoss: Bool)>()
    /// The bytes of what waits.
    public private(set) var waitingBytes = 0
    private var onTheWay = Deque<(number: UInt64, byteCount: Int)>()
    private var bytesOnTheWay = 0
    private var lastNumber: UInt64 = 0
    /// What was lost and not told yet.
    private var untold: UInt64 = 0
    /// Whether nothing was confirmed since it was given up.
    private var isInDoubt = false
    /// Those that were lost here.
    public private(set) var lost: UInt64 = 0
    public private(set) var sent: UInt64 = 0

    public init(_ bounds: Bounds) {
        self.bounds = bounds
    }

    public var waitingCount: Int { waiting.count }

    /// Whether something waits for the other side to confirm.
    public var isBlocked: Bool { !waiting.isEmpty && !hasRoom }

    public var hasRoom: Bool {
        if isInDoubt { return onTheWay.isEmpty }
        // One goes, however large it is.
        return onTheWay.isEmpty
            || onTheWay.count < bounds.window.count && bytesOnTheWay < bounds.window.bytes
    }

    /// Puts one behind the others.
    ///
    /// - Parameter countsAsLoss: whether it is told as lost when it is.
    /// - Returns: those that were lost for it, the oldest first.
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

    /// Loses the oldest of those that wait.
    public mutating func dropFirst() -> Item? {
        guard let oldest = waiting.popFirst() else { return nil }
        waitingBytes -= oldest.byteCount
        if oldest.countsAsLoss { noteLost(1) }
        return oldest.item
    }

    private mutating func noteLost(_ count: UInt64) {
        untold += count
        lost += count
    }

    /// The number of those that were lost since that was told: it is told now.
    public mutating func takeUntold() -> UInt64 {
        defer { untold = 0 }
        return untold
    }

    /// Takes the next that may go.
    ///
    /// - Returns: it, its number, and how many before it were lost; nil when nothing may go.
    public mutating func next() -> (item: Item, number: UInt64, lost: UInt64)? {
        guard hasRoom, let (item, byteCount, _) = waiting.popFirst() else { return nil }
        waitingBytes -= byteCount
        return (item, send(byteCount), takeUntold())
    }

    /// The same for what does not wait here, and goes before all that does.
    ///
    /// - Returns: its number; nil when nothing may go.
    public mutating func next(byteCount: Int) -> UInt64? { hasRoom ? send(byteCount) : nil }

    /// The same for the last of all, which goes whatever is on the way.
    public mutating func last(byteCount: Int) -> UInt64 { send(byteCount) }

    private mutating func send(_ byteCount: Int) -> UInt64 {
        lastNumber += 1
        onTheWay.append((lastNumber, byteCount))
        bytesOnTheWay += byteCount
        sent += 1
        return lastNumber
    }

    /// The other side has taken all up to this number.
    ///
    /// - Returns: false for a number that was not given.
    public mutating func confirm(upTo number: UInt64) -> Bool {
        guard number <= lastNumber else { return false }
        while let first = onTheWay.first, first.number <= number {
            bytesOnTheWay -= first.byteCount
            _ = onTheWay.popFirst()
            isInDoubt = false
        }
        return true
    }

    /// Nothing that waits goes any more: it is lost, and the next one tells.
    ///
    /// - Returns: how many that are told as lost.
    @discardableResult
    public mutating func clear() -> UInt64 {
        let before = lost
        while dropFirst() != nil {}
        waiting = Deque()
        return lost - before
    }

    /// Nothing was confirmed for long: what is on the way may be lost.
    public mutating func giveUp() {
        onTheWay = Deque()
        bytesOnTheWay = 0
        isInDoubt = true
    }
}
