// SPDX-License-Identifier: Apache-2.0
/// The two sources of a context that measure the progress of its loop in a scheduling cycle (M3): the *mark* detects the
/// end of a cycle, and the *floor* keeps the loop awake during it. ``LoopTurns`` explains cycles.
///
/// Both sources do no work, and exist as long as the context.
final class TurnSources: Sendable {
    private let mark: AttachedSource
    private let floor: AttachedSource

    private init(on context: MainContext) {
        let turns = context.state.turns
        mark = AttachedSource(Mark(turns), on: context, priority: .of(.mark), canRecurse: true)
        floor = AttachedSource(Floor(turns), on: context, priority: .of(.floor), canRecurse: true)
    }

    /// Ensures that the context has both sources. Every source that takes part in cycles calls this before it is
    /// attached.
    static func install(on context: MainContext) {
        _ = context.state.attachment(TurnSources.self) { TurnSources(on: context) }
    }
}

/// The mark: a source just ahead of drawing that is never ready. GLib calls its `check` only in an iteration in which no
/// source with a higher priority is ready; this ends the cycle.
private final class Mark: CheckedSourceHandler {
    private let turns: LoopTurns

    init(_ turns: LoopTurns) {
        self.turns = turns
    }

    func prepare(_ source: Source) -> SourceReadiness {
        turns.iterationBegins()
        return .waiting
    }

    func check() -> Bool {
        turns.reachedDrawingPriority()
        return false
    }
}

/// The floor: a source behind all others that is ready while a source with work rests. The loop then neither sleeps nor
/// counts as idle, so the resting source runs in the next cycle.
private final class Floor: CheckedSourceHandler {
    private let turns: LoopTurns

    init(_ turns: LoopTurns) {
        self.turns = turns
    }

    func prepare(_ source: Source) -> SourceReadiness {
        turns.keepsAwake() ? .ready : .waiting
    }

    func check() -> Bool { turns.isResting }

    func dispatch(_ source: Source) -> Bool { true }
}
