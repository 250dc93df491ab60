// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A source on a ``MainContext`` that any thread can trigger: the way into a loop from outside.
///
/// Signals that come before the action ran count as one, and wake the loop once. The action runs at the source's
/// priority, and may run a nested loop of the same context, in which the source can be dispatched again.
///
/// A source may have **modes** (M3): then its action runs only while the context is in one of them. Until such a mode
/// is entered the signal waits, without costing the loop anything.
///
/// A source that does some ``LoopWork`` shares the loop with all others: when it has run for its share of a turn it
/// rests until drawing, and all that is ahead of it, has had its turn. One whose work is to wait for idleness runs only
/// when none of them rests or was signalled.
///
/// Threads: all members from any thread. The source stays attached as long as this object and the context live; an
/// action that runs at that moment is finished. It does not keep the context alive.
public final class SignalledSource: Sendable {
    private let source: AttachedSource
    private let core: SourceCore
    private let follower: PriorityFollower?

    /// A source of a fixed priority.
    ///
    /// - Parameters:
    ///   - modes: those in which the action may run; nil = in every mode.
    ///   - action: called on the thread that runs `context`, after a ``signal()``.
    public convenience init(
        on context: MainContext, priority: EventSource.Priority, modes: Set<RunLoopMode>? = nil,
        action: @escaping @Sendable () -> Void
    ) {
        self.init(on: context, priority: priority, work: nil, gate: modes.map(ModeGate.init), action: action)
    }

    /// A source whose priority is that of its work in the context's current mode (M2), whatever that is.
    ///
    /// - Parameters:
    ///   - modes: those in which the action may run; nil = in every mode.
    ///   - action: called on the thread that runs `context`, after a ``signal()``.
    public convenience init(
        on context: MainContext, for work: LoopWork, modes: Set<RunLoopMode>? = [.common],
        action: @escaping @Sendable () -> Void
    ) {
        self.init(
            on: context, priority: .of(work, in: context.currentMode), work: work, gate: modes.map(ModeGate.init),
            action: action)
    }

    /// The same for one that knows by itself when there is something to do.
    package convenience init(
        on context: MainContext, for work: LoopWork, gate: any SourceGate, action: @escaping @Sendable () -> Void
    ) {
        self.init(on: context, priority: .of(work, in: context.currentMode), work: work, gate: gate, action: action)
    }

    private init(
        on context: MainContext, priority: EventSource.Priority, work: LoopWork?, gate: (any SourceGate)?,
        action: @escaping @Sendable () -> Void
    ) {
        TurnSources.install(on: context)
        let role: SourceCore.Role =
            switch work {
            case nil: .alone
            case .whenIdle: .idle
            default: .sharing
            }
        core = SourceCore(context: context.state, gate: gate, role: role, action: action)
        source = AttachedSource(core, on: context, priority: priority, canRecurse: true)
        follower = if let work { PriorityFollower(work: work, source: source, context: core.context) } else { nil }
        if let follower {
            context.state.add(follower)
            // The mode may have changed in between.
            follower.modeDidChange()
        }
    }

    deinit {
        if let follower { core.context.remove(follower) }
    }

    /// Has the action run, as soon as the loop comes to it.
    public func signal() {
        core.signal(afterOthers: false)
    }

    /// The same, but everything else that is ready gets its turn before, whatever its priority: for an action that goes
    /// on with more of the same, so that it starves nobody. The loop is not idle meanwhile.
    public func signalAfterOthers() {
        core.signal(afterOthers: true)
    }

    /// Whether the context is in one of the source's modes.
    public var isAllowed: Bool {
        core.isAllowed
    }

    /// Whether the action that runs may go on: it has not used up its share of the turn, and the context is in one of
    /// the source's modes. Asked by the action itself, between two things that it does; what it leaves is signalled for
    /// the next turn.
    public var mayGoOn: Bool {
        core.mayGoOn
    }
}

/// Says whether a source has anything that it may do in the current mode. Asked in every iteration in which the source
/// was signalled, on the thread that runs the context.
package protocol SourceGate: Sendable {
    func allows(in modes: ContextModes) -> Bool
}

/// One whose answer depends on what waits, and not only on the mode.
package protocol ContentGate: SourceGate {}

/// The modes of a source, of which the context is in one or not.
final class ModeGate: SourceGate {
    private let modes: Set<RunLoopMode>
    /// What the context answered, and when: texts are not compared in every iteration.
    private let answer = Locked((generation: -1, isAllowed: false))

    init(_ modes: Set<RunLoopMode>) {
        self.modes = modes
    }

    func allows(in context: ContextModes) -> Bool {
        let generation = context.generation
        return answer.withLock { answer in
            if answer.generation != generation { answer = (generation, context.allow(modes)) }
            return answer.isAllowed
        }
    }
}

/// What the source and GLib share: whether there is something to do, and whether it may be done now.
private final class SourceCore: CheckedSourceHandler, Sendable {
    enum Role {
        /// It has no part in turns, but may ask for a rest.
        case alone
        /// It has a share of each turn.
        case sharing
        /// It waits for idleness.
        case idle
    }

    private struct State {
        var isPending = false
        /// The turn until the end of which it rests.
        var restsIn: LoopTurns.Number?
        /// How long it ran in a turn in which it had something to do, and in which.
        var used: Int64 = 0
        var turn: LoopTurns.Number = -1
        /// That of the action that runs; of the innermost loop.
        var meter: ShareMeter?
        /// How many signals there had been when GLib was told that it is ready: of one that waits for idleness.
        var signals = 0
    }

    let context: ContextState
    private let gate: (any SourceGate)?
    /// Whether the gate's answer changes with what waits.
    private let dependsOnContent: Bool
    private let role: Role
    private let action: @Sendable () -> Void
    private let state = Locked(State())

    init(
        context: ContextState, gate: (any SourceGate)?, role: Role, action: @escaping @Sendable () -> Void
    ) {
        self.context = context
        self.gate = gate
        dependsOnContent = gate is any ContentGate
        self.role = role
        self.action = action
    }

    private var turns: LoopTurns { context.turns }

    func signal(afterOthers: Bool) {
        let isNew = state.withLock { state in
            if afterOthers { state.restsIn = turns.number }
            defer { state.isPending = true }
            return !state.isPending
        }
        if afterOthers { turns.rest() }
        // A signal that waits may have found nothing that is allowed; by now there is something, perhaps.
        guard isNew || dependsOnContent else { return }
        if role != .idle { turns.countSignal() }
        context.wakeUp()
    }

    var isAllowed: Bool {
        gate?.allows(in: ContextModes(context)) ?? true
    }

    var mayGoOn: Bool {
        // Where it depends on what waits, whoever takes the next finds out by itself whether there is one.
        guard dependsOnContent || isAllowed else { return false }
        return state.withLock { $0.meter?.hasTime() ?? true }
    }

    private func isReady(_ state: inout State) -> Bool {
        guard state.isPending, state.restsIn != turns.number, isAllowed else { return false }
        guard role != .sharing || hasShare(&state) else { return false }
        // Whoever rests has something to do yet; so has whoever is signalled from now on.
        state.signals = turns.signals
        return true
    }

    /// Whether it has a share of this turn yet; else it rests.
    ///
    /// - Parameter used: what it has used just now.
    private func hasShare(_ state: inout State, _ used: Int64 = 0) -> Bool {
        let turn = turns.number
        if state.turn != turn {
            (state.turn, state.used) = (turn, 0)
            turns.join()
        }
        state.used += used
        if turns.share(left: state.used) > 0 { return true }
        state.restsIn = turn
        turns.rest()
        return false
    }

    func prepare(_ source: Source) -> SourceReadiness {
        turns.iterationBegins()
        return state.withLock { state in
            if isReady(&state) { return .ready }
            let turn = turns.number
            if state.isPending, state.restsIn == turn, isAllowed { turns.noteTurnedAway(in: turn) }
            return .waiting
        }
    }

    // A signal may have come in the poll.
    func check() -> Bool {
        state.withLock { isReady(&$0) }
    }

    func dispatch(_ source: Source) -> Bool {
        let isDue = state.withLock { state in
            // A source that was dispatched just before may have changed the mode, or made the loop less idle.
            guard state.isPending, state.restsIn != turns.number, isAllowed else { return false }
            if role == .idle, turns.isResting || turns.signals != state.signals { return false }
            // Before the action: a signal that comes while it runs asks for another run.
            state.isPending = false
            return true
        }
        guard isDue else { return true }
        if role == .sharing { runShare() } else { action() }
        return true
    }

    /// Runs the action, and rests when the share of the turn is used up.
    private func runShare() {
        let outer = state.withLock { state in
            let outer = state.meter
            state.meter = ShareMeter(turns.shareClock, limit: turns.share(left: state.used))
            return outer
        }
        action()
        state.withLock { state in
            let used = state.meter?.used ?? 0
            state.meter = outer
            // What ran in a turn that is over counts in the one that began meanwhile: it is of the same loop's time.
            turns.use(used)
            _ = hasShare(&state, used)
        }
    }
}

/// Gives a source the priority of its work in the current mode.
private final class PriorityFollower: ContextState.ModeFollower, @unchecked Sendable {
    // Sendable: GLib locks the source's context for each change; the pointer never changes after `init`.
    private let source: UnsafeMutablePointer<GSource>
    private let context: ContextState
    private let work: LoopWork
    /// Held from the look at the mode until the source has its priority, so that no older look of another thread wins.
    private let changing = Locked(())

    init(work: LoopWork, source: AttachedSource, context: ContextState) {
        self.work = work
        self.context = context
        // Not the object: whoever tells followers of a mode must not keep the source on its context.
        self.source = g_source_ref(source.pointer)
    }

    deinit {
        context.release(source)
    }

    /// The caller holds the context.
    func modeDidChange() {
        changing.withLock { _ in
            let priority = EventSource.Priority.of(work, in: context.mode).rawValue
            // Where it stays the same, no list is sorted again.
            if g_source_get_priority(source) != priority { g_source_set_priority(source, priority) }
        }
    }
}
