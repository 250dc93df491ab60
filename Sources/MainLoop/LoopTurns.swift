// SPDX-License-Identifier: Apache-2.0
import Synchronization

/// Time slicing between the sources of a context that may always have more work, the *sharing sources*, and the rest of
/// its loop (M3).
///
/// The *mark* is a source with a priority just above that of drawing. When the loop dispatches it, no source with a
/// higher priority is ready.
///
/// Together the sharing sources may run for `ShareMeter.share` in a turn, divided among those with work; then they rest
/// until the turn is over. A turn is over when the loop reaches an iteration for drawing, or for lower priorities,
/// because all sources with higher priorities have then run. If the loop does not reach one, the rest ends after
/// ``longestRest``. `docs/main-loop.md` has a picture.
///
/// Threads: any; turns begin on the thread that runs the context.
final class LoopTurns: Sendable {
    /// The number of a turn, unique within its context.
    typealias Number = Int

    /// A clock that does not go back, in nanoseconds.
    typealias Clock = @Sendable () -> Int64

    /// The running time of the loop's thread, in nanoseconds, after which sharing sources run again, even if others
    /// have work.
    static let longestRest: Int64 = 16_000_000

    /// The corresponding limit in elapsed time, for a thread that has waited.
    private static let maxRestTime: Int64 = 64_000_000

    private enum Phase: Int {
        /// No source rests.
        case open
        /// A source rests until the loop reaches the mark.
        case resting
        /// The loop has reached the mark, and this iteration is for lower priorities; the next one begins a turn.
        case reached
    }

    let clock: Clock
    /// The clock that measures shares.
    let shareClock: ShareClock
    private let pool = Locked(Pool())
    private let phase = Atomic(Phase.open.rawValue)
    private let turn = Atomic<Number>(0)
    /// The meter of the current rest, from the first iteration that saw the rest on, and the time of its next check.
    private let restMeter = Locked<ShareMeter?>(nil)
    private let nextLook = Atomic<Int64>(0)
    private let signalCount = Atomic(0)
    /// The turn of a source that had to rest when the loop last asked; -1 for none.
    private let turnedAwayIn = Atomic<Number>(-1)

    /// - Parameter clock: the clock; nil for the machine's clock, and the clock of threads for shares.
    init(clock: Clock?) {
        self.clock = clock ?? SteadyClock.nanoseconds
        shareClock = clock.map { ShareClock($0) } ?? .own
    }

    /// The common budget of the sharing sources in a turn.
    private struct Pool {
        var turn: Number = 0
        var used: Int64 = 0
        /// The numbers of sources with work in this turn, and in the one before.
        var contenders = 0
        var contendersBefore = 0

        mutating func begin(_ turn: Number) {
            guard turn != self.turn else { return }
            contendersBefore = turn == self.turn + 1 ? contenders : 0
            (self.turn, used, contenders) = (turn, 0, 0)
        }

        func left(_ own: Int64) -> Int64 {
            min(
                ShareMeter.share / Int64(max(1, contenders, contendersBefore)) - own,
                ShareMeter.share - used)
        }
    }

    /// Notes that a sharing source has work in this turn; called once for each.
    func join() {
        let turn = number
        pool.withLock {
            $0.begin(turn)
            $0.contenders += 1
        }
    }

    /// Returns the time that a sharing source may still run, in nanoseconds; it may not run if the result is not
    /// positive.
    ///
    /// - Parameter own: the time that the source has used in this turn.
    func remainingShare(used own: Int64) -> Int64 {
        let turn = number
        return pool.withLock {
            $0.begin(turn)
            return $0.left(own)
        }
    }

    /// Notes that a sharing source has run for `time` nanoseconds.
    func use(_ time: Int64) {
        let turn = number
        pool.withLock {
            $0.begin(turn)
            $0.used += time
        }
    }

    // MARK: Sharing sources

    /// The number of the current turn.
    var number: Number {
        turn.load(ordering: .acquiring)
    }

    /// Whether any source rests until the turn is over.
    var isResting: Bool {
        phase.load(ordering: .acquiring) != Phase.open.rawValue
    }

    /// Lets the turn end when the other sources have had theirs. Every source that rests calls this.
    func rest() {
        guard !isResting else { return }
        nextLook.store(0, ordering: .relaxed)
        _ = phase.compareExchange(
            expected: Phase.open.rawValue, desired: Phase.resting.rawValue, ordering: .acquiringAndReleasing)
    }

    /// Notes the beginning of an iteration. Each source calls this in its `prepare`, before it reports its readiness.
    func iterationBegins() {
        switch Phase(rawValue: phase.load(ordering: .acquiring))! {
        case .open: return
        case .resting: if restGoesOn { return }
        case .reached: break
        }
        restMeter.withLock { $0 = nil }
        // In this order: a source that comes in between rests in a turn that ends.
        phase.store(Phase.open.rawValue, ordering: .releasing)
        turn.add(1, ordering: .acquiringAndReleasing)
    }

    private var restGoesOn: Bool {
        guard clock() >= nextLook.load(ordering: .relaxed) else { return true }
        return restMeter.withLock { rest in
            var meter = rest ?? ShareMeter(shareClock, limit: Self.longestRest, maxTime: Self.maxRestTime)
            defer { rest = meter }
            let goesOn = meter.hasTime()
            nextLook.store(meter.nextLook, ordering: .relaxed)
            return goesOn
        }
    }

    /// Notes that a source with work has to rest in this turn.
    func noteDeferred(in turn: Number) {
        turnedAwayIn.store(turn, ordering: .releasing)
    }

    /// Whether the loop may not sleep. This holds while a source rests, and if a source had to rest in this iteration
    /// before time ended the turn. Called after all sharing sources.
    func keepsAwake() -> Bool {
        let turnedAwayIn = turnedAwayIn.exchange(-1, ordering: .acquiringAndReleasing)
        return isResting || (turnedAwayIn >= 0 && turnedAwayIn != number)
    }

    // MARK: Idle sources

    /// The number of signals to sources that share this loop. A comparison shows whether signals have arrived.
    var signals: Int {
        signalCount.load(ordering: .acquiring)
    }

    func countSignal() {
        signalCount.add(1, ordering: .acquiringAndReleasing)
    }

    // MARK: Mark

    /// Notes that no source with a higher priority than drawing is ready in this iteration.
    func reachedDrawingPriority() {
        let (reached, _) = phase.compareExchange(
            expected: Phase.resting.rawValue, desired: Phase.reached.rawValue, ordering: .acquiringAndReleasing)
        // No source rests: the next turn begins at once.
        if !reached, phase.load(ordering: .acquiring) == Phase.open.rawValue {
            turn.add(1, ordering: .acquiringAndReleasing)
        }
    }
}
