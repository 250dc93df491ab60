import Collections
import MainLoop

/// What shall run on one thread, handed over by any number of others (T1): the general solution of which the classic
/// documentation of notification centers only gives a sketch.
///
/// It keeps the order of each thread that appends, and of all that is ordered otherwise (a lock around the posts, say).
/// It knows nothing of loops: `wake` makes the target call ``drain(while:)``, whatever the target is.
///
/// It is bounded (T2): where there is no room the oldest goes, and is counted.
///
/// Threads: all members from any thread, but `drain` only on the target's.
public final class DeliveryQueue: Sendable {
    /// How much may wait.
    public struct Limits: Equatable, Sendable {
        public var count: Int
        /// In the bytes that ``DeliveryQueue/append(byteCount:_:)`` was told.
        public var byteCount: Int

        public init(count: Int, byteCount: Int) {
            self.count = count
            self.byteCount = byteCount
        }

        /// 131,072 notifications or 64 MiB: as much as the service keeps for a client.
        public static let standard = Limits(count: 131_072, byteCount: 64 << 20)
    }

    /// What a notification counts for whose size nobody knows.
    public static let assumedByteCount = 256

    private typealias Work = @Sendable () -> Void

    private struct State {
        var entries = Deque<(work: Work, byteCount: Int)>()
        var byteCount = 0
        var lost: UInt64 = 0
        /// Whether the target was woken and did not begin to drain since.
        var isAwake = false
        var isClosed = false

        /// Whether the target has to be woken for what waits; the caller then does.
        mutating func mustWake() -> Bool {
            guard !isAwake, !entries.isEmpty else { return false }
            isAwake = true
            return true
        }
    }

    private let state = Locked(State())
    private let limits: Limits
    private let wake: @Sendable () -> Void
    private let wakeAfterOthers: @Sendable () -> Void

    /// - Parameters:
    ///   - wake: makes the target thread call ``drain(while:)``. It is called with no lock held, once for a batch: by
    ///     the first append, and not again until the target drains; and by `drain` itself, once, when there is more
    ///     than one to run, so that a nested loop inside the first goes on with the next.
    ///   - wakeAfterOthers: the same, but after what else the target has to do; called by a `drain` that returns
    ///     although more waits, so that an endless stream does not starve the target's loop. Nil = as `wake`.
    public init(
        limits: Limits = .standard, wake: @escaping @Sendable () -> Void,
        wakeAfterOthers: (@Sendable () -> Void)? = nil
    ) {
        self.limits = limits
        self.wake = wake
        self.wakeAfterOthers = wakeAfterOthers ?? wake
    }

    /// Hands something over.
    ///
    /// - Parameters:
    ///   - byteCount: about how much memory it keeps.
    ///   - work: called on the target thread, with no lock held.
    /// - Returns: how many were lost to make room, the oldest first; 1 after ``close()``, which is this one.
    @discardableResult
    public func append(
        byteCount: Int = DeliveryQueue.assumedByteCount, _ work: @escaping @Sendable () -> Void
    ) -> Int {
        // Released after the lock: what they hold may end with them, and run code of its own.
        var dropped: [Work] = []
        let (lost, shallWake) = state.withLock { state -> (Int, Bool) in
            guard !state.isClosed else {
                state.lost += 1
                return (1, false)
            }
            while let oldest = state.entries.first,
                state.entries.count >= limits.count || state.byteCount + byteCount > limits.byteCount
            {
                state.entries.popFirst()
                state.byteCount -= oldest.byteCount
                dropped.append(oldest.work)
            }
            state.lost += UInt64(dropped.count)
            state.entries.append((work, byteCount))
            state.byteCount += byteCount
            return (dropped.count, state.mustWake())
        }
        withExtendedLifetime(dropped) {}
        if shallWake { wake() }
        return lost
    }

    /// Runs what waits, one after the other, until nothing does. What comes meanwhile runs too, but after a thousand
    /// the target's other work gets its turn first. A nested call, from within what runs, goes on with the next.
    ///
    /// - Parameter allowed: asked before each. When it says no with something left, the target is woken again: by a
    ///   source that is held back for the same reason, so that the rest runs when that is over.
    public func drain(while allowed: () -> Bool = { true }) {
        // The wake-up that led here is used up.
        state.withLock { $0.isAwake = false }
        for _ in 0..<1_000 {
            guard allowed() else {
                if state.withLock({ $0.mustWake() }) { wake() }
                return
            }
            let (work, shallWake) = state.withLock { state -> (Work?, Bool) in
                guard let entry = state.entries.popFirst() else { return (nil, false) }
                state.byteCount -= entry.byteCount
                return (entry.work, state.mustWake())
            }
            guard let work else { return }
            if shallWake { wake() }
            work()
        }
        // Also when it is awake: that wake-up would come before the others.
        if state.withLock({ !$0.entries.isEmpty }) { wakeAfterOthers() }
    }

    /// Drops what waits, and counts it as lost, as all that is appended from now on.
    ///
    /// - Returns: how many were dropped.
    @discardableResult
    public func close() -> Int {
        let dropped = state.withLock { state in
            let dropped = state.entries
            state.entries.removeAll()
            state.byteCount = 0
            state.lost += UInt64(dropped.count)
            state.isClosed = true
            return dropped
        }
        return dropped.count
    }

    /// How many were lost since the queue was made.
    public var lost: UInt64 {
        state.withLock { $0.lost }
    }

    /// How many wait.
    public var count: Int {
        state.withLock { $0.entries.count }
    }
}
