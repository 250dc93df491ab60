// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// What shall run on one thread, handed over by any number of others (T1): the general solution of which the classic
/// documentation of notification centers only gives a sketch.
///
/// It keeps the order of each thread that appends, and of all that is ordered otherwise (a lock around the posts, say).
/// It knows nothing of loops: `wake` makes the target call ``drain(while:)``, whatever the target is.
///
/// It is bounded (T2): where there is no room the oldest goes, and is counted. What is larger than all the room there
/// is goes itself.
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

    /// How long a ``drain(while:)`` goes on before the target's other work gets its turn.
    public static let share = Duration.nanoseconds(ShareMeter.share)

    /// What a notification counts for whose size nobody knows.
    public static let assumedByteCount = 256

    private struct Job: Sendable {
        let run: @Sendable () -> Void
    }

    private let state: Locked<Backlog<Job>>
    private let wake: @Sendable () -> Void
    private let wakeAfterOthers: @Sendable () -> Void
    private let clock: @Sendable () -> Int64

    /// - Parameters:
    ///   - wake: makes the target thread call ``drain(while:)``. It is called with no lock held, once for a batch: by
    ///     the first append, and not again until the target drains; and by `drain` itself, once, when there is more
    ///     than one to run, so that a nested loop inside the first goes on with the next.
    ///   - wakeAfterOthers: the same, but after what else the target has to do; called by a `drain` that returns
    ///     although more waits, so that an endless stream does not starve the target's loop. Nil = as `wake`.
    public convenience init(
        limits: Limits = .standard, wake: @escaping @Sendable () -> Void,
        wakeAfterOthers: (@Sendable () -> Void)? = nil
    ) {
        self.init(limits: limits, clock: SteadyClock.nanoseconds, wake: wake, wakeAfterOthers: wakeAfterOthers)
    }

    /// The same with another clock, in nanoseconds: for tests.
    package init(
        limits: Limits = .standard, clock: @escaping @Sendable () -> Int64, wake: @escaping @Sendable () -> Void,
        wakeAfterOthers: (@Sendable () -> Void)? = nil
    ) {
        state = Locked(Backlog(limits))
        self.clock = clock
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
        append(byteCount: byteCount, payload: nil, in: .ofCommon, work)
    }

    /// The same for what is for certain modes only, and keeps memory together with others.
    ///
    /// - Parameters:
    ///   - payload: what it keeps beside `byteCount`, together with others in this queue.
    ///   - modes: those in which a ``drain(in:while:share:)`` with a context's modes runs it.
    package func append(
        byteCount: Int, payload: Payload?, in modes: ModeSet, _ work: @escaping @Sendable () -> Void
    ) -> Int {
        let outcome = state.withLock {
            $0.append(Job(run: work), byteCount: byteCount, payload: payload, in: modes)
        }
        if outcome.shallWake { wake() }
        // What was dropped ends here, with no lock held.
        return outcome.lost
    }

    /// Runs what waits, one after the other, until nothing does. What comes meanwhile runs too, but after ``share`` the
    /// target's other work gets its turn first. A nested call, from within what runs, goes on with the next.
    ///
    /// - Parameter allowed: asked before each. When it says no with something left, the target is woken again: by a
    ///   source that is held back for the same reason, so that the rest runs when that is over.
    public func drain(while allowed: () -> Bool = { true }) {
        let end = clock() + ShareMeter.share
        drain(in: nil, while: allowed) { clock() < end }
    }

    /// The same for a target that has modes, or a share of its own.
    ///
    /// - Parameters:
    ///   - modes: only what they allow runs; nil = all. The target is woken again for the rest, as above.
    ///   - hasTime: asked behind each, whether the share of the turn is not used up.
    package func drain(in modes: ContextModes?, while allowed: () -> Bool, share hasTime: () -> Bool) {
        // The wake-up that led here is used up.
        state.withLock { $0.isAwake = false }
        repeat {
            let isAllowed = allowed()
            let (job, shallWake) = state.withLock { state -> (Job?, Bool) in
                let job = isAllowed ? state.next(in: modes) : nil
                // A source with a gate for these modes keeps a signal back while there is nothing: who comes next wakes
                // it again.
                if job == nil, modes != nil { state.isAwake = false }
                // For a loop that is nested in what runs now, or for what may not run yet.
                return (job, state.mustWake())
            }
            if shallWake { wake() }
            guard let job else { return }
            job.run()
        } while hasTime()
        // Also when it is awake: that wake-up would come before the others.
        let isLeft = state.withLock { state in
            state.isAwake = (state.isAwake && modes == nil) || state.count > 0
            return state.count > 0
        }
        if isLeft { wakeAfterOthers() }
    }

    /// Whether anything waits that may run in the context's mode.
    package func hasAllowed(in modes: ContextModes) -> Bool {
        state.withLock { $0.hasAllowed(in: modes) }
    }

    /// Drops what waits, and counts it as lost, as all that is appended from now on.
    ///
    /// - Returns: how many were dropped.
    @discardableResult
    public func close() -> Int {
        let dropped = state.withLock { $0.close() }
        return dropped.count
    }

    /// How many were lost since the queue was made.
    public var lost: UInt64 {
        state.withLock { $0.lost }
    }

    /// How many wait.
    public var count: Int {
        state.withLock { $0.count }
    }

    /// How many bytes wait, and for how many sets of modes: for tests.
    package var extent: (byteCount: Int, laneCount: Int) {
        state.withLock { ($0.byteCount, $0.laneCount) }
    }
}
