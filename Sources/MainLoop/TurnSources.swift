// SPDX-License-Identifier: Apache-2.0
/// The two sources of a context that detect how far its loop comes in a turn (M3).
///
/// They exist as long as the context.
final class TurnSources: Sendable {
    private let mark: AttachedSource
    private let floor: AttachedSource

    private init(on context: MainContext) {
        let turns = context.state.turns
        mark = AttachedSource(Mark(turns), on: context, priority: .of(.mark), canRecurse: true)
        floor = AttachedSource(Floor(turns), on: context, priority: .of(.floor), canRecurse: true)
    }

    /// Ensures that the context has both sources. Every source that takes turns with others calls this before it is
    /// attached.
    static func install(on context: MainContext) {
        _ = context.state.attachment(TurnSources.self) { TurnSources(on: context) }
    }
}

/// The mark, which is never ready. GLib asks it in an iteration in which no source with a higher priority is ready.
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

/// The floor, which is ready while a source rests, or did so a moment ago: the loop then neither sleeps nor is idle.
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
