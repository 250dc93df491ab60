// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A source on a ``MainContext`` that any thread can trigger.
///
/// Signals before the action runs count as one, and wake the loop once. The action runs at the source's priority. It
/// may run a nested loop of the same context, in which the source can be dispatched again.
///
/// A source may have **modes** (M3): its action then runs only while the context is in one of them. Until then the
/// signal waits, at no cost for the loop.
///
/// A source with a ``LoopWork`` shares the loop with all others. When it has run for its share of a turn, it rests
/// until drawing and all higher priorities have had their turn. A source that waits for idleness runs only when no
/// sharing source rests or was signaled.
///
/// Threads: any. The source stays attached as long as this object and the context live. An action that runs when the
/// object is released is finished. The source does not keep the context alive.
public final class SignalledSource: Sendable {
    private let source: AttachedSource
    private let core: SourceCore
    private let follower: PriorityFollower?

    /// Creates a source with a fixed priority.
    ///
    /// - Parameters:
    ///   - modes: the modes in which the action may run; nil means every mode.
    ///   - action: called on the thread that runs `context`, after a ``signal()``.
    public convenience init(
        on context: MainContext, priority: EventSource.Priority, modes: Set<RunLoopMode>? = nil,
        action: @escaping @Sendable () -> Void
    ) {
        self.init(on: context, priority: priority, work: nil, gate: modes.map(ModeGate.init), action: action)
    }

    /// Creates a source that always has the priority of its work in the context's current mode (M2).
    ///
    /// - Parameters:
    ///   - modes: the modes in which the action may run; nil means every mode.
    ///   - action: called on the thread that runs `context`, after a ``signal()``.
    public convenience init(
        on context: MainContext, for work: LoopWork, modes: Set<RunLoopMode>? = [.common],
        action: @escaping @Sendable () -> Void
    ) {
        self.init(
            on: context, priority: .of(work, in: context.currentMode), work: work, gate: modes.map(ModeGate.init),
            action: action)
    }

    /// Creates a source whose gate decides when there is work to do.
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
            // The mode may have changed since the priority was read.
            follower.modeDidChange()
        }
    }

    deinit {
        if let follower { core.context.remove(follower) }
    }

    /// Makes the action run as soon as the loop reaches this source.
    public func signal() {
        core.signal(afterOthers: false)
    }

    /// Makes the action run after everything else that is ready, regardless of priorities. An action that continues
    /// with more of the same work uses this, so that it starves no other source. The loop is not idle meanwhile.
    public func signalAfterOthers() {
        core.signal(afterOthers: true)
    }

    /// Whether the context is in one of the source's modes.
    public var isAllowed: Bool {
        core.isAllowed
    }

    /// Whether the running action may continue: it has not used up its share of the turn, and the context is in one of
    /// the source's modes. The action itself asks this between two items of work, and signals the source for the items
    /// that it leaves to the next turn.
    public var hasTimeLeft: Bool {
        core.hasTimeLeft
    }
}

/// The decision whether a source has work that it may do in the current mode. Called on the thread that runs the
/// context, in every iteration while a signal is pending.
package protocol SourceGate: Sendable {
    func allows(in modes: ContextModes) -> Bool
}

/// A gate whose answer depends on the waiting work, and not only on the mode.
package protocol ContentGate: SourceGate {}

/// A gate that opens while the context is in one of the source's modes.
final class ModeGate: SourceGate {
    private let modes: Set<RunLoopMode>
    /// The last answer of the context, and its generation, so that texts are not compared in every iteration.
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

/// The state that the source shares with GLib: whether there is work, and whether it may be done now.
private final class SourceCore: CheckedSourceHandler, Sendable {
    enum Role {
        /// The source takes no part in turns, but may request a rest.
        case alone
        /// The source has a share of each turn.
        case sharing
        /// The source waits for idleness.
        case idle
    }

    private struct State {
        var isPending = false
        /// The turn until whose end the source rests.
        var restsIn: LoopTurns.Number?
        /// The time that the source ran in its last turn with work, and the number of that turn.
        var used: Int64 = 0
        var turn: LoopTurns.Number = -1
        /// The meter of the running action, in the innermost loop.
        var meter: ShareMeter?
        /// For a source that waits for idleness: the number of signals when it reported to GLib that it is ready.
        var signals = 0
    }

    let context: ContextState
    private let gate: (any SourceGate)?
    /// Whether the gate's answer changes with the waiting work.
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
        // The pending signal may have found no allowed work; there may be some by now.
        guard isNew || dependsOnContent else { return }
        if role != .idle { turns.countSignal() }
        context.wakeUp()
    }

    var isAllowed: Bool {
        gate?.allows(in: ContextModes(context)) ?? true
    }

    var hasTimeLeft: Bool {
        // If the gate depends on the waiting work, the action itself finds out whether more is allowed.
        guard dependsOnContent || isAllowed else { return false }
        return state.withLock { $0.meter?.hasTime() ?? true }
    }

    private func isReady(_ state: inout State) -> Bool {
        guard state.isPending, state.restsIn != turns.number, isAllowed else { return false }
        guard role != .sharing || hasShare(&state) else { return false }
        // A source that rests still has work, and so has a source that is signaled from now on.
        state.signals = turns.signals
        return true
    }

    /// Whether the source has a share of this turn left; otherwise it begins to rest.
    ///
    /// - Parameter used: the time that it has just used.
    private func hasShare(_ state: inout State, _ used: Int64 = 0) -> Bool {
        let turn = turns.number
        if state.turn != turn {
            (state.turn, state.used) = (turn, 0)
            turns.join()
        }
        state.used += used
        if turns.remainingShare(used: state.used) > 0 { return true }
        state.restsIn = turn
        turns.rest()
        return false
    }

    func prepare(_ source: Source) -> SourceReadiness {
        turns.iterationBegins()
        return state.withLock { state in
            if isReady(&state) { return .ready }
            let turn = turns.number
            if state.isPending, state.restsIn == turn, isAllowed { turns.noteDeferred(in: turn) }
            return .waiting
        }
    }

    // A signal may have arrived during the poll.
    func check() -> Bool {
        state.withLock { isReady(&$0) }
    }

    func dispatch(_ source: Source) -> Bool {
        let isDue = state.withLock { state in
            // A source that was dispatched just before may have changed the mode, or made the loop less idle.
            guard state.isPending, state.restsIn != turns.number, isAllowed else { return false }
            if role == .idle, turns.isResting || turns.signals != state.signals { return false }
            // This precedes the action: a signal while the action runs requests another run.
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
            state.meter = ShareMeter(turns.shareClock, limit: turns.remainingShare(used: state.used))
            return outer
        }
        action()
        state.withLock { state in
            let used = state.meter?.used ?? 0
            state.meter = outer
            // Time in a turn that is over counts in the turn that has begun meanwhile, because it is time of the same
            // loop.
            turns.use(used)
            _ = hasShare(&state, used)
        }
    }
}

/// The follower of the mode that gives a source the priority of its work in it.
private final class PriorityFollower: ContextState.ModeFollower, @unchecked Sendable {
    // Sendable: GLib locks the source's context for each change; the pointer never changes after `init`.
    private let source: UnsafeMutablePointer<GSource>
    private let context: ContextState
    private let work: LoopWork
    /// Held from reading the mode until the source has its priority, so that an older reading by another thread does
    /// not win.
    private let changing = Locked(())

    init(work: LoopWork, source: AttachedSource, context: ContextState) {
        self.work = work
        self.context = context
        // The pointer instead of the object: a thread that notifies followers must not keep the source on its context.
        self.source = g_source_ref(source.pointer)
    }

    deinit {
        context.release(source)
    }

    /// Updates the priority of the source. The caller holds the context.
    func modeDidChange() {
        changing.withLock { _ in
            let priority = EventSource.Priority.of(work, in: context.mode).rawValue
            // An unchanged priority would only cause lists to be sorted again.
            if g_source_get_priority(source) != priority { g_source_set_priority(source, priority) }
        }
    }
}
