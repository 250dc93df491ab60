// SPDX-License-Identifier: Apache-2.0
/// The two sources of a context that see how far its loop comes in a turn (M3).
///
/// They stay as long as the context.
final class TurnSources: Sendable {
    private let mark: AttachedSource
    private let floor: AttachedSource

    private init(on context: MainContext) {
        let turns = context.state.turns
        mark = AttachedSource(Mark(turns), on: context, priority: .of(.mark), canRecurse: true)
        floor = AttachedSource(Floor(turns), on: context, priority: .of(.floor), canRecurse: true)
    }

    /// Sees to it that the context has them: every source that takes turns with others calls this before it is attached.
    static func install(on context: MainContext) {
        _ = context.state.attachment(TurnSources.self) { TurnSources(on: context) }
    }
}

/// Never ready: GLib asks it in an iteration in which nothing ahead of it is.
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
        turns.loopCameToMark()
        return false
    }
}

/// Ready while somebody rests, or did so a moment ago: the loop neither sleeps nor is idle.
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
