// SPDX-License-Identifier: Apache-2.0
import Synchronization

/// The turns of a context's loop (M3): how the sources that always may have more to do share it with all others.
///
/// Each of them may run for ``share`` in a turn, and rests until that is over. A turn is over when the loop has come to
/// an iteration that belongs to drawing or to what stands behind it, as everyone ahead has had what it wanted then. A
/// loop that never comes so far is waited for no longer than ``longestRest``. `docs/main-loop.md` has a picture.
///
/// Threads: any; turns begin on the thread that runs the context.
final class LoopTurns: Sendable {
    /// Tells turns of a context apart.
    typealias Number = Int

    /// A clock that does not go back, in nanoseconds.
    typealias Clock = @Sendable () -> Int64

    /// How long one source may run in a turn, in nanoseconds. Four of them leave half of the 16 ms between two pictures.
    static let share: Int64 = 2_000_000
    /// After so many nanoseconds of rest it is the turn of those that share, whatever others have to do.
    static let longestRest: Int64 = 16_000_000

    private enum Phase: Int {
        /// Nobody rests.
        case open
        /// Somebody rests until the loop comes to the mark.
        case resting
        /// The loop has come to it, and this iteration is that of those behind; the next begins a turn.
        case reached
    }

    let clock: Clock
    private let phase = Atomic(Phase.open.rawValue)
    private let turn = Atomic<Number>(0)
    private let restBegan = Atomic<Int64>(0)
    private let signalCount = Atomic(0)
    /// The turn in which somebody was told to rest when the loop asked last; -1 for none.
    private let turnedAwayIn = Atomic<Number>(-1)

    init(clock: @escaping Clock) {
        self.clock = clock
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
        restBegan.store(clock(), ordering: .relaxed)
        _ = phase.compareExchange(
            expected: Phase.open.rawValue, desired: Phase.resting.rawValue, ordering: .acquiringAndReleasing)
    }

    /// An iteration begins: asked by each in its `prepare`, before it says whether it is ready.
    func iterationBegins() {
        switch Phase(rawValue: phase.load(ordering: .acquiring))! {
        case .open: return
        case .resting: if clock() - restBegan.load(ordering: .relaxed) < Self.longestRest { return }
        case .reached: break
        }
        turn.add(1, ordering: .acquiringAndReleasing)
        phase.store(Phase.open.rawValue, ordering: .releasing)
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
