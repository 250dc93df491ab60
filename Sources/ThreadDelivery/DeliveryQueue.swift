// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A bounded queue of work for one thread, the *target*, filled by any number of other threads (T1). Notification
/// centers deliver to observers on other threads with it; programs can use it for their own threads.
///
/// The queue is FIFO: it keeps the order of each appending thread, and every order between threads that the program
/// establishes, for example with a lock around its posts. The queue is independent of the kind of loop: it calls
/// `wake`, and the target's thread then calls ``drain(while:)``.
///
/// When a limit is reached, the oldest entries are discarded and counted as lost (T2). An entry that alone exceeds the
/// limit of bytes is itself discarded.
///
/// Threads: any; only `drain` must be called on the target's thread.
public final class DeliveryQueue: Sendable {
    /// The limits of the waiting work.
    public struct Limits: Equatable, Sendable {
        /// The maximum number of waiting entries.
        public var count: Int
        /// The maximum sum of the sizes, in bytes, that callers pass to ``DeliveryQueue/append(byteCount:_:)``.
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

    /// The assumed size of a notification whose size is unknown, in bytes.
    public static let assumedByteCount = 256

    private struct Job: Sendable {
        let run: @Sendable () -> Void
    }

    private let state: Locked<Backlog<Job>>
    private let wake: @Sendable () -> Void
    private let wakeAfterOthers: @Sendable () -> Void
    private let clock: @Sendable () -> Int64

    /// - Parameters:
    ///   - wake: makes the target's thread call ``drain(while:)``. The first append calls it, with no lock held; later
    ///     appends do not call it until the target drains. While more than one entry waits, `drain` itself also calls
    ///     it once, so that a loop nested in the first entry's work continues with the next entry.
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
    /// - Returns: the number of lost entries: the oldest ones, which were discarded to free space for this one. An
    ///   entry that alone exceeds the limit of bytes, or is appended after ``close()``, is lost itself; the result is
    ///   then 1.
    @discardableResult
    public func append(
        byteCount: Int = DeliveryQueue.assumedByteCount, _ work: @escaping @Sendable () -> Void
    ) -> Int {
        append(byteCount: byteCount, payload: nil, in: .ofCommon, work)
    }

    /// Appends work for certain modes that shares memory with other work.
    ///
    /// - Parameters:
    ///   - payload: the memory that `work` shares with other work in this queue, in addition to `byteCount`.
    ///   - modes: the modes in which `work` may run, if the target drains with ``drain(in:while:share:)``.
    package func append(
        byteCount: Int, payload: Payload?, in modes: ModeSet, _ work: @escaping @Sendable () -> Void
    ) -> Int {
        let outcome = state.withLock {
            $0.append(Job(run: work), byteCount: byteCount, payload: payload, in: modes)
        }
        if outcome.mustWakeTarget { wake() }
        // The discarded entries are released here, with no lock held.
        return outcome.lost
    }

    /// Runs the waiting work in its order until none is left, including work that is appended meanwhile. After
    /// ``share``, the target's other work runs first. A nested call, from within running work, continues with the next
    /// entry.
    ///
    /// - Parameter allowed: asked before each entry; false ends the call. If work remains, the target is woken again.
    ///   The woken source must then be blocked by the same condition as `allowed`: otherwise it would be woken in a
    ///   loop.
    public func drain(while allowed: () -> Bool = { true }) {
        let end = clock() + ShareMeter.share
        drain(in: nil, while: allowed) { clock() < end }
    }

    /// Runs the waiting work of a target that has modes, or a time budget of its own.
    ///
    /// - Parameters:
    ///   - modes: the context's modes, which select the work that may run; nil allows all. If work remains, the target
    ///     is woken again, as for ``drain(while:)``.
    ///   - hasTime: asked after each entry; false if the time budget is used up, which ends the call.
    package func drain(in modes: ContextModes?, while allowed: () -> Bool, share hasTime: () -> Bool) {
        // This drain uses up the wake-up that led to it.
        state.withLock { $0.isAwake = false }
        repeat {
            let isAllowed = allowed()
            let (job, mustWakeTarget) = state.withLock { state -> (Job?, Bool) in
                let job = isAllowed ? state.next(in: modes) : nil
                // No waiting work is allowed in the mode. The gate of the target's source holds its signal until there
                // is allowed work, so the next append must wake the loop again.
                if job == nil, modes != nil { state.isAwake = false }
                // Work remains behind this job. The wake-up lets a loop nested in the job run it, and keeps a signal
                // pending for work that may not run yet.
                return (job, state.mustWake())
            }
            if mustWakeTarget { wake() }
            guard let job else { return }
            job.run()
        } while hasTime()
        // The time is used up. The wake-up after others is needed even if a normal one is pending: the latter would
        // come before the target's other work.
        let isLeft = state.withLock { state in
            // A pending wake-up serves later appends, except in a queue with modes: there the gate holds its signal
            // while the queue is empty, so the next append must wake the loop.
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

    /// The number of waiting bytes, and of sets of modes with waiting entries; for tests.
    package var extent: (byteCount: Int, laneCount: Int) {
        state.withLock { ($0.byteCount, $0.laneCount) }
    }
}
