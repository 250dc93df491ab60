import CGLib

/// A source on a ``MainContext`` that any thread can trigger: the way into a loop from outside.
///
/// Signals that come before the action ran count as one, and wake the loop once. The action runs at the source's
/// priority, and may run a nested loop of the same context, in which the source can be dispatched again.
///
/// A source may have **modes** (M3): then its action runs only while the context is in one of them. Until such a mode
/// is entered the signal waits, without costing the loop anything.
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
        self.init(on: context, priority: priority, work: nil, modes: modes, action: action)
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
        let priority = EventSource.Priority.of(work, in: context.currentMode)
        self.init(on: context, priority: priority, work: work, modes: modes, action: action)
    }

    private init(
        on context: MainContext, priority: EventSource.Priority, work: LoopWork?, modes: Set<RunLoopMode>?,
        action: @escaping @Sendable () -> Void
    ) {
        core = SourceCore(context: context.state, modes: modes, action: action)
        source = AttachedSource(core, on: context, priority: priority, canRecurse: true)
        if let work { follower = PriorityFollower(work: work, source: source) } else { follower = nil }
        if let follower {
            context.state.add(follower)
            // The mode may have changed in between.
            follower.modeDidChange(to: context.currentMode)
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
    /// on with more of the same, so that it starves nobody.
    public func signalAfterOthers() {
        core.signal(afterOthers: true)
    }

    /// Whether the context is in one of the source's modes.
    public var isAllowed: Bool {
        core.isAllowed
    }
}

/// What the source and GLib share: whether there is something to do, and whether it may be done now.
private final class SourceCore: SourceHandler, Sendable {
    private enum Pause {
        case none
        /// In the next iteration the source is not ready.
        case due
        /// This is that iteration.
        case now
    }

    private struct State {
        var isPending = false
        var pause = Pause.none
        /// What the context answered, and when.
        var isAllowed = false
        var generation = -1
    }

    let context: ContextState
    private let modes: Set<RunLoopMode>?
    private let action: @Sendable () -> Void
    private let state = Locked(State())

    init(context: ContextState, modes: Set<RunLoopMode>?, action: @escaping @Sendable () -> Void) {
        self.context = context
        self.modes = modes
        self.action = action
    }

    func signal(afterOthers: Bool) {
        let wasPending = state.withLock { state in
            if afterOthers { state.pause = .due }
            defer { state.isPending = true }
            return state.isPending
        }
        if !wasPending { context.wakeUp() }
    }

    var isAllowed: Bool {
        modes.map(context.allows) ?? true
    }

    private func allows(_ state: inout State) -> Bool {
        guard let modes else { return true }
        let generation = context.generation
        if generation != state.generation {
            state.isAllowed = context.allows(modes)
            state.generation = generation
        }
        return state.isAllowed
    }

    func prepare(_ source: Source) -> SourceReadiness {
        state.withLock { state in
            guard state.isPending, allows(&state) else { return .waiting }
            switch state.pause {
            case .none: return .ready
            case .due:
                state.pause = .now
                return .resting
            case .now:
                state.pause = .none
                return .ready
            }
        }
    }

    // A signal may have come in the poll.
    func check() -> Bool {
        state.withLock { state in state.isPending && state.pause == .none && allows(&state) }
    }

    func dispatch(_ source: Source) -> Bool {
        let isDue = state.withLock { state in
            // A source that was dispatched just before may have changed the mode.
            guard state.isPending, allows(&state) else { return false }
            // Before the action: a signal that comes while it runs asks for another run.
            state.isPending = false
            return true
        }
        if isDue { action() }
        return true
    }
}

/// Gives a source the priority of its work in the current mode.
private final class PriorityFollower: ContextState.ModeFollower, @unchecked Sendable {
    // Sendable: GLib locks the source's context for each change; the pointer never changes after `init`.
    private let source: UnsafeMutablePointer<GSource>
    private let work: LoopWork

    init(work: LoopWork, source: AttachedSource) {
        self.work = work
        // Not the object: whoever tells followers of a mode must not keep the source on its context.
        self.source = g_source_ref(source.pointer)
    }

    deinit {
        g_source_unref(source)
    }

    func modeDidChange(to mode: RunLoopMode) {
        let priority = EventSource.Priority.of(work, in: mode).rawValue
        // Where it stays the same, no list is sorted again.
        if g_source_get_priority(source) != priority { g_source_set_priority(source, priority) }
    }
}
