// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A queue of work for one thread, filled by any number of other threads (T1). It is the general solution of a problem
/// for which the classic documentation of notification centers gives only a sketch.
///
/// The queue keeps the order of each thread that appends, and every other order that the program establishes, for
/// example with a lock around its posts. It knows no loops: `wake` makes the target call ``drain(while:)``, whether the
/// target is a loop or a queue.
///
/// The queue is bounded (T2): when its space is used up, the oldest entries are discarded and counted as lost. An entry
/// that is larger than the whole space is itself discarded.
///
/// Threads: any; only `drain` must be called on the target's thread.
public final class DeliveryQueue: Sendable {
    /// The limits of the waiting work.
    public struct Limits: Equatable, Sendable {
        public var count: Int
        /// The maximum sum of the sizes that callers pass to ``DeliveryQueue/append(byteCount:_:)``.
        public var byteCount: Int

        public init(count: Int, byteCount: Int) {
            self.count = count
            self.byteCount = byteCount
        }

        /// 131,072 notifications or 64 MiB: as much as the service queues for one client.
        public static let standard = Limits(count: 131_072, byteCount: 64 << 20)
    }

    /// The time, 2 milliseconds, after which a ``drain(while:)`` lets the target's other work run first.
    public static let share = Duration.nanoseconds(ShareMeter.share)

    /// The assumed size of a notification whose size is unknown.
    public static let assumedByteCount = 256

    private struct Job: Sendable {
        let run: @Sendable () -> Void
    }

    private let state: Locked<Backlog<Job>>
    private let wake: @Sendable () -> Void
    private let wakeAfterOthers: @Sendable () -> Void
    private let clock: @Sendable () -> Int64

    /// - Parameters:
    ///   - wake: makes the target's thread call ``drain(while:)``. It is called with no lock held, once for a batch: by
    ///     the first append, and not again until the target drains. While more than one entry waits, `drain` itself
    ///     also calls it once, so that a loop nested in the first entry's work continues with the next.
    ///   - wakeAfterOthers: does the same as `wake`, but after the target's other work. A `drain` that returns while
    ///     work waits calls it, so that an endless stream does not starve the target's loop. Nil means `wake`.
    public convenience init(
        limits: Limits = .standard, wake: @escaping @Sendable () -> Void,
        wakeAfterOthers: (@Sendable () -> Void)? = nil
    ) {
        self.init(limits: limits, clock: SteadyClock.nanoseconds, wake: wake, wakeAfterOthers: wakeAfterOthers)
    }

    /// Creates a queue with another clock, in nanoseconds; for tests.
    package init(
        limits: Limits = .standard, clock: @escaping @Sendable () -> Int64, wake: @escaping @Sendable () -> Void,
        wakeAfterOthers: (@Sendable () -> Void)? = nil
    ) {
        state = Locked(Backlog(limits))
        self.clock = clock
        self.wake = wake
        self.wakeAfterOthers = wakeAfterOthers ?? wake
    }

    /// Appends work for the target.
    ///
    /// - Parameters:
    ///   - byteCount: the approximate memory that the work keeps, in bytes.
    ///   - work: called on the target's thread, with no lock held.
    /// - Returns: the number of entries that were lost, the oldest first, to free space for this one. An entry that
    ///   exceeds the whole space, or is appended after ``close()``, is lost itself; the result is then 1.
    @discardableResult
    public func append(
        byteCount: Int = DeliveryQueue.assumedByteCount, _ work: @escaping @Sendable () -> Void
    ) -> Int {
        append(byteCount: byteCount, payload: nil, in: .ofCommon, work)
    }

    /// Appends work for certain modes that shares memory with other work.
    ///
    /// - Parameters:
    ///   - payload: the memory that it keeps beside `byteCount` and shares with other work in this queue.
    ///   - modes: the modes in which a ``drain(in:while:share:)`` with a context's modes runs it.
    package func append(
        byteCount: Int, payload: Payload?, in modes: ModeSet, _ work: @escaping @Sendable () -> Void
    ) -> Int {
        let outcome = state.withLock {
            $0.append(Job(run: work), byteCount: byteCount, payload: payload, in: modes)
        }
        if outcome.shallWake { wake() }
        // The discarded entries are released here, with no lock held.
        return outcome.lost
    }

    /// Runs the waiting work in its order until none is left, including work that is appended meanwhile. After
    /// ``share``, the target's other work runs first. A nested call, from within running work, continues with the next
    /// entry.
    ///
    /// - Parameter allowed: asked before each entry. If it returns false while work waits, the target is woken again.
    ///   The woken source must be held back for the same reason, so that the rest runs when that reason ends.
    public func drain(while allowed: () -> Bool = { true }) {
        let end = clock() + ShareMeter.share
        drain(in: nil, while: allowed) { clock() < end }
    }

    /// Runs the waiting work of a target that has modes, or a share of its own.
    ///
    /// - Parameters:
    ///   - modes: the context's modes, which select the work that may run; nil allows all. The target is woken again
    ///     for the rest, as for ``drain(while:)``.
    ///   - hasTime: asked after each entry, whether the share of the turn is not used up.
    package func drain(in modes: ContextModes?, while allowed: () -> Bool, share hasTime: () -> Bool) {
        // This drain uses up the wake-up that led to it.
        state.withLock { $0.isAwake = false }
        repeat {
            let isAllowed = allowed()
            let (job, shallWake) = state.withLock { state -> (Job?, Bool) in
                let job = isAllowed ? state.next(in: modes) : nil
                // A source with a gate for these modes holds a signal back while no work is allowed, so the next append
                // wakes it again.
                if job == nil, modes != nil { state.isAwake = false }
                // The wake-up serves a loop that is nested in the work that runs now, or work that may not run yet.
                return (job, state.mustWake())
            }
            if shallWake { wake() }
            guard let job else { return }
            job.run()
        } while hasTime()
        // This applies also while the target is awake: that wake-up would come before the target's other work.
        let isLeft = state.withLock { state in
            state.isAwake = (state.isAwake && modes == nil) || state.count > 0
            return state.count > 0
        }
        if isLeft { wakeAfterOthers() }
    }

    /// Whether the context's mode allows any waiting work.
    package func hasAllowed(in modes: ContextModes) -> Bool {
        state.withLock { $0.hasAllowed(in: modes) }
    }

    /// Discards the waiting work and counts it as lost, like all work that is appended later.
    ///
    /// - Returns: the number of discarded entries.
    @discardableResult
    public func close() -> Int {
        let dropped = state.withLock { $0.close() }
        return dropped.count
    }

    /// The number of entries that were lost since the queue was created.
    public var lost: UInt64 {
        state.withLock { $0.lost }
    }

    /// The number of waiting entries.
    public var count: Int {
        state.withLock { $0.count }
    }

    /// The number of waiting bytes, and of sets of modes with entries; for tests.
    package var extent: (byteCount: Int, laneCount: Int) {
        state.withLock { ($0.byteCount, $0.laneCount) }
    }
}
