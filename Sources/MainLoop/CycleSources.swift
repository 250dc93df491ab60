// SPDX-License-Identifier: Apache-2.0
/// The two sources of a context that measure the progress of its loop in a scheduling cycle (M3): the *mark* detects
/// the end of a cycle, and the *floor* keeps the loop awake during it. ``LoopCycles`` explains cycles.
///
/// Both sources do no work, and exist as long as the context.
final class CycleSources: Sendable {
    private let mark: AttachedSource
    private let floor: AttachedSource

    private init(on context: MainContext) {
        let cycles = context.state.cycles
        mark = AttachedSource(Mark(cycles), on: context, priority: .of(.mark), canRecurse: true)
        floor = AttachedSource(Floor(cycles), on: context, priority: .of(.floor), canRecurse: true)
    }

    /// Ensures that the context has both sources. Every source that takes part in cycles calls this before it is
    /// attached.
    static func install(on context: MainContext) {
        _ = context.state.attachment(CycleSources.self) { CycleSources(on: context) }
    }
}

/// The mark: a source just ahead of drawing that is never ready. GLib calls its `check` only in an iteration in which
/// no source with a higher priority is ready; this ends the cycle.
private final class Mark: CheckedSourceHandler {
    private let cycles: LoopCycles

    init(_ cycles: LoopCycles) {
        self.cycles = cycles
    }

    func prepare(_ source: Source) -> SourceReadiness {
        cycles.iterationBegins()
        return .waiting
    }

    func check() -> Bool {
        cycles.reachedDrawingPriority()
        return false
    }
}

/// The floor: a source behind all others that is ready while a source with work rests. The loop then neither sleeps nor
/// counts as idle, so the resting source runs in the next cycle.
private final class Floor: CheckedSourceHandler {
    private let cycles: LoopCycles

    init(_ cycles: LoopCycles) {
        self.cycles = cycles
    }

    func prepare(_ source: Source) -> SourceReadiness {
        cycles.keepsAwake() ? .ready : .waiting
    }

    func check() -> Bool { cycles.isResting }

    func dispatch(_ source: Source) -> Bool { true }
}
