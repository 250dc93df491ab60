// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A source on a ``MainContext`` that any thread can trigger.
///
/// Each ``signal()`` requests a run of the action on the context's thread, at the source's priority. Several signals
/// before the action runs count as one, and wake the loop once. The action may run a nested loop of the same context,
/// in which the source can be dispatched again. The delivery queues and the notification queues use such sources.
///
/// A source may have **modes** (M3): its action then runs only while the context is in one of them. Until then the
/// signal waits, at no cost for the loop.
///
/// A source with a ``LoopWork`` has a limited share of the loop's time: all such sources together may run for 2 ms in
/// each *cycle* of the loop. A source that has used up its part *rests* until the next cycle. A cycle lasts until all
/// sources up to the priority of drawing have run. A source for ``LoopWork/whenIdle`` has no such limit. It runs only
/// while no other source rests or has a signal.
///
/// Threads: any. The source stays attached as long as this object and the context live. If the action is running at the
/// release of this object, it runs to its end. The source does not keep the context alive.
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

    /// Creates a source whose gate decides whether its work may run, in place of a set of modes.
    package convenience init(
        on context: MainContext, for work: LoopWork, gate: any SourceGate, action: @escaping @Sendable () -> Void
    ) {
        self.init(on: context, priority: .of(work, in: context.currentMode), work: work, gate: gate, action: action)
    }

    /// Creates a source.
    ///
    /// - Parameters:
    ///   - work: the kind of work, which decides about the priority and about the share of a cycle. Nil stands for a
    ///     fixed priority and no time limit.
    ///   - gate: the condition for a run; nil for none.
    private init(
        on context: MainContext, priority: EventSource.Priority, work: LoopWork?, gate: (any SourceGate)?,
        action: @escaping @Sendable () -> Void
    ) {
        CycleSources.install(on: context)
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

    /// Makes the action run after all other ready sources, up to the priority of drawing. An action that continues with
    /// more of the same work uses this, so that it starves no other source. The loop does not count as idle until then.
    public func signalAfterOthers() {
        core.signal(afterOthers: true)
    }

    /// Whether the context is in one of the source's modes.
    public var isAllowed: Bool {
        core.isAllowed
    }

    /// Whether the running action may continue: it has time left in this cycle, and the context is in one of the
    /// source's modes. The action itself asks this between two items of work. It signals the source again if items
    /// remain.
    public var hasTimeLeft: Bool {
        core.hasTimeLeft
    }
}

/// The condition of a ``SignalledSource``: a pending signal runs the action only while the gate allows it. The source
/// asks its gate in every iteration while a signal is pending, on the thread that runs the context.
package protocol SourceGate: Sendable {
    /// Whether the source has work that may run in the context's current mode.
    func allows(in modes: ContextModes) -> Bool
}

/// A gate whose answer depends on the waiting work, and not only on the mode. A repeated signal then wakes the loop
/// again, because the new work may be allowed although the earlier work was not.
package protocol ContentGate: SourceGate {}

/// A gate that opens while the context is in one of the source's modes.
final class ModeGate: SourceGate {
    private let modes: Set<RunLoopMode>
    /// The last answer of the context, valid while the context has this generation of modes. The cache avoids the
    /// comparison of mode names in every iteration.
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

/// The state of a ``SignalledSource``, which GLib's source holds: whether a signal is pending, and whether the action
/// may run now.
private final class SourceCore: CheckedSourceHandler, Sendable {
    /// The part of a source in the loop's scheduling cycles (``LoopCycles``).
    enum Role {
        /// The source's running time is not limited. It rests only after ``SignalledSource/signalAfterOthers()``.
        case alone
        /// The source has a share of the time budget of each cycle.
        case sharing
        /// The source runs only when the loop is idle.
        case idle
    }

    private struct State {
        var isPending = false
        /// The cycle in which the source rests; nil before the first rest.
        var restingCycle: LoopCycles.Number?
        /// The time that the source ran in its last cycle with work, in nanoseconds, and the number of that cycle.
        var used: Int64 = 0
        var cycle: LoopCycles.Number = -1
        /// The meter of the running action; with nested runs, that of the innermost one.
        var meter: ShareMeter?
        /// For the role `idle`: the value of ``LoopCycles/signals`` when the source reported to GLib that it is ready.
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

    private var cycles: LoopCycles { context.cycles }

    func signal(afterOthers: Bool) {
        let isNew = state.withLock { state in
            if afterOthers { state.restingCycle = cycles.number }
            defer { state.isPending = true }
            return !state.isPending
        }
        if afterOthers { cycles.rest() }
        // A pending signal has woken the loop already. A content gate may have refused the work of that time, and allow
        // the new work, so the loop must check again.
        guard isNew || dependsOnContent else { return }
        if role != .idle { cycles.countSignal() }
        context.wakeUp()
    }

    var isAllowed: Bool {
        gate?.allows(in: ContextModes(context)) ?? true
    }

    var hasTimeLeft: Bool {
        // With a content gate, the action itself finds out whether more work is allowed.
        guard dependsOnContent || isAllowed else { return false }
        return state.withLock { $0.meter?.hasTime() ?? true }
    }

    private func isReady(_ state: inout State) -> Bool {
        guard state.isPending, state.restingCycle != cycles.number, isAllowed else { return false }
        guard role != .sharing || hasShare(&state) else { return false }
        // A signal to any other source from now on shows in the count, and an idle source then does not run.
        state.signals = cycles.signals
        return true
    }

    /// Whether the source has time left in this cycle. If not, it begins to rest.
    ///
    /// - Parameter used: the time that its action has just used, in nanoseconds.
    private func hasShare(_ state: inout State, _ used: Int64 = 0) -> Bool {
        let cycle = cycles.number
        if state.cycle != cycle {
            (state.cycle, state.used) = (cycle, 0)
            cycles.join()
        }
        state.used += used
        if cycles.remainingShare(used: state.used) > 0 { return true }
        state.restingCycle = cycle
        cycles.rest()
        return false
    }

    func prepare(_ source: Source) -> SourceReadiness {
        cycles.iterationBegins()
        return state.withLock { state in
            if isReady(&state) { return .ready }
            let cycle = cycles.number
            if state.isPending, state.restingCycle == cycle, isAllowed { cycles.noteDeferred(in: cycle) }
            return .waiting
        }
    }

    // A signal may have arrived during the poll.
    func check() -> Bool {
        state.withLock { isReady(&$0) }
    }

    func dispatch(_ source: Source) -> Bool {
        let isDue = state.withLock { state in
            // A source that was dispatched since GLib asked may have changed the mode, or signaled other sources.
            guard state.isPending, state.restingCycle != cycles.number, isAllowed else { return false }
            if role == .idle, cycles.isResting || cycles.signals != state.signals { return false }
            // This precedes the action: a signal while the action runs requests another run.
            state.isPending = false
            return true
        }
        guard isDue else { return true }
        if role == .sharing { runShare() } else { action() }
        return true
    }

    /// Runs the action with a meter for its share of the cycle. Then the source rests if the share is used up.
    private func runShare() {
        let outer = state.withLock { state in
            let outer = state.meter
            state.meter = ShareMeter(cycles.shareClock, limit: cycles.remainingShare(used: state.used))
            return outer
        }
        action()
        state.withLock { state in
            let used = state.meter?.used ?? 0
            state.meter = outer
            // A nested loop may have begun a new cycle meanwhile. The whole time then counts in the new cycle.
            cycles.use(used)
            _ = hasShare(&state, used)
        }
    }
}

/// Updates the priority of a source when the context's mode changes: work has a priority in each mode (M2).
private final class PriorityFollower: ContextState.ModeFollower, @unchecked Sendable {
    // Sendable: GLib locks the source's context for each change; the pointer never changes after `init`.
    private let source: UnsafeMutablePointer<GSource>
    private let context: ContextState
    private let work: LoopWork
    /// Held from reading the mode until the source has its priority. Otherwise another thread with an older mode could
    /// set its priority last.
    private let changing = Locked(())

    init(work: LoopWork, source: AttachedSource, context: ContextState) {
        self.work = work
        self.context = context
        // A reference to the GLib source and not to its owner: a thread that notifies followers must not keep the
        // source attached.
        self.source = g_source_ref(source.pointer)
    }

    deinit {
        context.release(source)
    }

    /// Updates the priority of the source. The caller has a reference to the context.
    func modeDidChange() {
        changing.withLock { _ in
            let priority = EventSource.Priority.of(work, in: context.mode).rawValue
            // GLib would sort the source into its lists again even if the priority is unchanged.
            if g_source_get_priority(source) != priority { g_source_set_priority(source, priority) }
        }
    }
}
