// SPDX-License-Identifier: Apache-2.0
import Synchronization

/// The scheduling cycles of a context: time slicing between the *sharing sources*, which deliver notifications and may
/// always have more work, and all other sources (M3). Each context has one object, in its ``ContextState``.
///
/// GLib alone would let a source that always has work starve all sources of lower priority, such as drawing.
///
/// - In a **cycle**, the sharing sources together may run for ``ShareMeter/share`` (2 ms). Only sources with work get a
///   part. A source without time left *rests*: it is not ready until the next cycle.
/// - The cycle ends when the loop reaches an iteration for drawing or for lower priorities: all sources of higher
///   priority have then run. The **mark** detects this. It is a source just ahead of drawing, which GLib asks for its
///   readiness only if no source of a higher priority is ready.
/// - If the loop never reaches the mark, resting ends after ``longestRest``.
/// - The **floor** is a source behind all others that is ready while a source rests. It keeps the loop from sleeping.
///
/// Mark and floor are in ``CycleSources``. `docs/main-loop.md` has a picture.
///
/// Threads: any; cycles begin on the thread that runs the context.
final class LoopCycles: Sendable {
    /// The number of a cycle, unique within its context.
    typealias Number = Int

    /// A clock that does not go back, in nanoseconds.
    typealias Clock = @Sendable () -> Int64

    /// The processor time of the loop's thread, in nanoseconds, after which sharing sources run again even though other
    /// sources always have work. It is about the time between two frames of a display.
    static let longestRest: Int64 = 16_000_000

    /// The corresponding limit in elapsed time, in nanoseconds, for a thread that waits instead of computing. As for a
    /// share (``ShareMeter/standardMaxTime``), it is four times as long as the limit in processor time.
    private static let maxRestTime: Int64 = 64_000_000

    private enum Phase: Int {
        /// No source rests.
        case open
        /// A source rests until the loop reaches the mark.
        case resting
        /// The loop has reached the mark. This iteration is for drawing or lower priorities; the next one begins a
        /// cycle.
        case reached
    }

    let clock: Clock
    /// The clock that measures shares.
    let shareClock: ShareClock
    private let pool = Locked(Pool())
    /// The ``Phase``.
    private let phase = Atomic(Phase.open.rawValue)
    /// The number of the current cycle.
    private let cycle = Atomic<Number>(0)
    /// The meter of the current rest against ``longestRest``; nil until the first iteration of the rest.
    private let restMeter = Locked<ShareMeter?>(nil)
    /// The time of `clock` at which that meter must be read again; see ``ShareMeter/nextReading``.
    private let nextReading = Atomic<Int64>(0)
    private let signalCount = Atomic(0)
    /// The cycle in which a source with work was not ready because it rested, in this iteration; -1 for none.
    private let deferredCycle = Atomic<Number>(-1)

    /// - Parameter clock: the clock for all times, for tests and simulations. Nil means the machine's clock for rests,
    ///   and the thread's processor time for shares.
    init(clock: Clock?) {
        self.clock = clock ?? SteadyClock.nanoseconds
        shareClock = clock.map { ShareClock($0) } ?? .own
    }

    /// The common budget of the sharing sources in a cycle.
    private struct Pool {
        /// The cycle to which the other fields belong.
        var cycle: Number = 0
        /// The time that all sharing sources have used, in nanoseconds.
        var used: Int64 = 0
        /// The numbers of sources with work in this cycle, and in the one before.
        var contenders = 0
        var contendersBefore = 0

        /// Resets the budget if `cycle` is a new cycle.
        mutating func begin(_ cycle: Number) {
            guard cycle != self.cycle else { return }
            contendersBefore = cycle == self.cycle + 1 ? contenders : 0
            (self.cycle, used, contenders) = (cycle, 0, 0)
        }

        /// Returns the time left for a source that has used `own`. Each source with work has an equal part of the
        /// budget. The sources of the cycle before count too: in a new cycle, the first source does not yet know the
        /// others.
        func left(_ own: Int64) -> Int64 {
            min(
                ShareMeter.share / Int64(max(1, contenders, contendersBefore)) - own,
                ShareMeter.share - used)
        }
    }

    /// Records that a sharing source has work in this cycle. Called once for each such source.
    func join() {
        let cycle = number
        pool.withLock {
            $0.begin(cycle)
            $0.contenders += 1
        }
    }

    /// Returns the time that a sharing source may still run, in nanoseconds; it may not run if the result is not
    /// positive.
    ///
    /// - Parameter own: the time that the source has used in this cycle, in nanoseconds.
    func remainingShare(used own: Int64) -> Int64 {
        let cycle = number
        return pool.withLock {
            $0.begin(cycle)
            return $0.left(own)
        }
    }

    /// Records that a sharing source has run for `time` nanoseconds.
    func use(_ time: Int64) {
        let cycle = number
        pool.withLock {
            $0.begin(cycle)
            $0.used += time
        }
    }

    // MARK: Sharing sources

    /// The number of the current cycle.
    var number: Number {
        cycle.load(ordering: .acquiring)
    }

    /// Whether any source rests until the cycle is over.
    var isResting: Bool {
        phase.load(ordering: .acquiring) != Phase.open.rawValue
    }

    /// Begins a rest: the cycle ends when the loop next reaches the mark. Every source that begins to rest calls this.
    func rest() {
        guard !isResting else { return }
        nextReading.store(0, ordering: .relaxed)
        _ = phase.compareExchange(
            expected: Phase.open.rawValue, desired: Phase.resting.rawValue, ordering: .acquiringAndReleasing)
    }

    /// Begins a new cycle if the rest has ended. Each source calls this in its `prepare`, before it reports its
    /// readiness; the first call in an iteration has the effect.
    func iterationBegins() {
        switch Phase(rawValue: phase.load(ordering: .acquiring))! {
        case .open: return
        case .resting: if restGoesOn { return }
        case .reached: break
        }
        restMeter.withLock { $0 = nil }
        // The phase opens before the number rises. A source that begins to rest in between thus rests in the old cycle,
        // which ends at once.
        phase.store(Phase.open.rawValue, ordering: .releasing)
        cycle.add(1, ordering: .acquiringAndReleasing)
    }

    /// Whether the rest has not exceeded ``longestRest``.
    private var restGoesOn: Bool {
        guard clock() >= nextReading.load(ordering: .relaxed) else { return true }
        return restMeter.withLock { rest in
            var meter = rest ?? ShareMeter(shareClock, limit: Self.longestRest, maxTime: Self.maxRestTime)
            defer { rest = meter }
            let goesOn = meter.hasTime()
            nextReading.store(meter.nextReading, ordering: .relaxed)
            return goesOn
        }
    }

    /// Records that a source with work is not ready in this iteration, because it rests in the cycle `cycle`.
    func noteDeferred(in cycle: Number) {
        deferredCycle.store(cycle, ordering: .releasing)
    }

    /// Whether the loop must not sleep; the floor asks it, after all sharing sources have reported their readiness.
    ///
    /// This holds while a source rests. It also holds if the rest ended by its time limit during this iteration, after
    /// a source had reported that it is not ready: that source is ready in the next iteration.
    func keepsAwake() -> Bool {
        let deferredCycle = deferredCycle.exchange(-1, ordering: .acquiringAndReleasing)
        return isResting || (deferredCycle >= 0 && deferredCycle != number)
    }

    // MARK: Idle sources

    /// The number of signals to sources of this loop other than *when idle* ones. A *when idle* source compares it to
    /// find out whether work arrived since GLib asked for its readiness; then the loop is not idle.
    var signals: Int {
        signalCount.load(ordering: .acquiring)
    }

    func countSignal() {
        signalCount.add(1, ordering: .acquiringAndReleasing)
    }

    // MARK: Mark

    /// Records that no source with a higher priority than drawing is ready in this iteration. The mark calls it.
    func reachedDrawingPriority() {
        let (reached, _) = phase.compareExchange(
            expected: Phase.resting.rawValue, desired: Phase.reached.rawValue, ordering: .acquiringAndReleasing)
        // No source rests: the next cycle begins at once.
        if !reached, phase.load(ordering: .acquiring) == Phase.open.rawValue {
            cycle.add(1, ordering: .acquiringAndReleasing)
        }
    }
}
