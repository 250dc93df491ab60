// SPDX-License-Identifier: Apache-2.0
import Synchronization

/// The turns of a context's loop (M3): how the sources that always may have more to do share it with all others.
///
/// Together they may run for `ShareMeter.share` in a turn, which those who have something to do divide; then they rest until
/// that is over. A turn is over when the loop has come to
/// an iteration that belongs to drawing or to what stands behind it, as everyone ahead has had what it wanted then. A
/// loop that never comes so far is waited for no longer than ``longestRest``. `docs/main-loop.md` has a picture.
///
/// Threads: any; turns begin on the thread that runs the context.
final class LoopTurns: Sendable {
    /// Tells turns of a context apart.
    typealias Number = Int

    /// A clock that does not go back, in nanoseconds.
    typealias Clock = @Sendable () -> Int64

    /// After so many nanoseconds that the loop's thread has run it is the turn of those that share, whatever others have to
    /// do.
    static let longestRest: Int64 = 16_000_000

    /// The same in the time that passes, where the thread has waited.
    private static let maxRestTime: Int64 = 64_000_000

    private enum Phase: Int {
        /// Nobody rests.
        case open
        /// Somebody rests until the loop comes to the mark.
        case resting
        /// The loop has come to it, and this iteration is that of those behind; the next begins a turn.
        case reached
    }

    let clock: Clock
    /// The clock by which shares are measured.
    let shareClock: ShareClock
    private let pool = Locked(Pool())
    private let phase = Atomic(Phase.open.rawValue)
    private let turn = Atomic<Number>(0)
    /// The rest that goes on, from the first iteration that saw it, and when its meter is to be asked again.
    private let restMeter = Locked<ShareMeter?>(nil)
    private let nextLook = Atomic<Int64>(0)
    private let signalCount = Atomic(0)
    /// The turn in which somebody was told to rest when the loop asked last; -1 for none.
    private let turnedAwayIn = Atomic<Number>(-1)

    /// - Parameter clock: nil for that of the machine, and that of threads for shares.
    init(clock: Clock?) {
        self.clock = clock ?? SteadyClock.nanoseconds
        shareClock = clock.map { ShareClock($0) } ?? .own
    }

    /// The common budget of the sharing sources in a turn.
    private struct Pool {
        var turn: Number = 0
        var used: Int64 = 0
        /// Those who had something to do in this turn, and in the one before.
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

    /// Somebody who shares has something to do in this turn; once for each.
    func join() {
        let turn = number
        pool.withLock {
            $0.begin(turn)
            $0.contenders += 1
        }
    }

    /// How long one of them may run yet, in nanoseconds; nothing when that is not positive.
    ///
    /// - Parameter own: what it has used of the turn.
    func share(left own: Int64) -> Int64 {
        let turn = number
        return pool.withLock {
            $0.begin(turn)
            return $0.left(own)
        }
    }

    /// One of them has run, for so many nanoseconds.
    func use(_ time: Int64) {
        let turn = number
        pool.withLock {
            $0.begin(turn)
            $0.used += time
        }
    }

    // MARK: For those that share

    /// The turn that goes on.
    var number: Number {
        turn.load(ordering: .acquiring)
    }

    /// Whether anyone rests until the turn is over.
    var isResting: Bool {
        phase.load(ordering: .acquiring) != Phase.open.rawValue
    }

    /// Has the turn end when the others have had theirs; whoever rests says so.
    func rest() {
        guard !isResting else { return }
        nextLook.store(0, ordering: .relaxed)
        _ = phase.compareExchange(
            expected: Phase.open.rawValue, desired: Phase.resting.rawValue, ordering: .acquiringAndReleasing)
    }

    /// An iteration begins: asked by each in its `prepare`, before it says whether it is ready.
    func iterationBegins() {
        switch Phase(rawValue: phase.load(ordering: .acquiring))! {
        case .open: return
        case .resting: if restGoesOn { return }
        case .reached: break
        }
        restMeter.withLock { $0 = nil }
        // In this order: whoever comes in between rests in a turn that ends.
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

    /// Somebody who has something to do was told that it rests in this turn.
    func noteTurnedAway(in turn: Number) {
        turnedAwayIn.store(turn, ordering: .releasing)
    }

    /// Whether the loop may not sleep: somebody rests, or was told so in this iteration before time ended the turn. Asked
    /// behind all who share.
    func keepsAwake() -> Bool {
        let turnedAwayIn = turnedAwayIn.exchange(-1, ordering: .acquiringAndReleasing)
        return isResting || (turnedAwayIn >= 0 && turnedAwayIn != number)
    }

    // MARK: For whoever waits for idleness

    /// How often a source that shares this loop was signalled: whoever compares sees whether anything came.
    var signals: Int {
        signalCount.load(ordering: .acquiring)
    }

    func countSignal() {
        signalCount.add(1, ordering: .acquiringAndReleasing)
    }

    // MARK: For the mark

    /// Nothing ahead of drawing is ready in this iteration.
    func loopCameToMark() {
        let (reached, _) = phase.compareExchange(
            expected: Phase.resting.rawValue, desired: Phase.reached.rawValue, ordering: .acquiringAndReleasing)
        // Nobody rests: the next turn begins without further ado.
        if !reached, phase.load(ordering: .acquiring) == Phase.open.rawValue {
            turn.add(1, ordering: .acquiringAndReleasing)
        }
    }
}
