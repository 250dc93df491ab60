import CGLib
import Synchronization

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
public final class SignalledSource: @unchecked Sendable {
    // Sendable: GLib locks the source's context for each change; the pointer never changes after `init`.
    private let source: UnsafeMutablePointer<GSource>
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
        self.init(on: context, priority: priority, kind: nil, modes: modes, action: action)
    }

    /// A source whose priority is that of its kind in the context's current mode (M2), whatever that is.
    ///
    /// - Parameters:
    ///   - modes: those in which the action may run; nil = in every mode.
    ///   - action: called on the thread that runs `context`, after a ``signal()``.
    public convenience init(
        on context: MainContext, for kind: DeliveryKind, modes: Set<RunLoopMode>? = [.common],
        action: @escaping @Sendable () -> Void
    ) {
        let priority = EventSource.Priority.of(kind, in: context.currentMode)
        self.init(on: context, priority: priority, kind: kind, modes: modes, action: action)
    }

    private init(
        on context: MainContext, priority: EventSource.Priority, kind: DeliveryKind?, modes: Set<RunLoopMode>?,
        action: @escaping @Sendable () -> Void
    ) {
        core = SourceCore(context: context.state, modes: modes, action: action)
        let size = slotOffset + MemoryLayout<UnsafeMutableRawPointer>.size
        source = g_source_new(sourceFunctions.pointer, guint(size))
        let slot = Unmanaged.passRetained(core).toOpaque()
        UnsafeMutableRawPointer(source).storeBytes(of: slot, toByteOffset: slotOffset, as: UnsafeMutableRawPointer.self)
        g_source_set_priority(source, priority.rawValue)
        g_source_set_can_recurse(source, 1)
        if let kind { follower = PriorityFollower(kind: kind, source: source) } else { follower = nil }
        g_source_attach(source, context.pointer)
        if let follower {
            context.state.add(follower)
            // The mode may have changed in between.
            follower.modeDidChange(to: context.currentMode)
        }
    }

    deinit {
        if let follower { core.context.remove(follower) }
        core.context.destroy(source)
        g_source_unref(source)
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

    /// Takes a ``signal()`` back whose action did not run yet.
    public func cancel() {
        core.cancel()
    }

    /// Whether the context is in one of the source's modes.
    public var isAllowed: Bool {
        core.isAllowed
    }
}

/// What the source and GLib share: whether there is something to do, and whether it may be done now.
private final class SourceCore: Sendable {
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
    private let state = Mutex(State())

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

    func cancel() {
        state.withLock { state in
            state.isPending = false
            state.pause = .none
        }
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

    /// Before the loop polls.
    ///
    /// - Returns: whether the source is ready; and whether the loop may wait for events.
    func prepare() -> (isReady: Bool, mayWait: Bool) {
        state.withLock { state in
            guard state.isPending, allows(&state) else { return (false, true) }
            switch state.pause {
            case .none: return (true, false)
            case .due:
                state.pause = .now
                return (false, false)
            case .now:
                state.pause = .none
                return (true, false)
            }
        }
    }

    /// After the poll, in which a signal may have come.
    func check() -> Bool {
        state.withLock { state in state.isPending && state.pause == .none && allows(&state) }
    }

    func dispatch() {
        let isDue = state.withLock { state in
            // A source that was dispatched just before may have changed the mode.
            guard state.isPending, allows(&state) else { return false }
            // Before the action: a signal that comes while it runs asks for another run.
            state.isPending = false
            return true
        }
        if isDue { action() }
    }
}

/// Gives a source the priority of its kind in the current mode.
private final class PriorityFollower: ContextState.ModeFollower, @unchecked Sendable {
    // Sendable: GLib locks the source's context for each change; the pointer never changes after `init`.
    private let source: UnsafeMutablePointer<GSource>
    private let kind: DeliveryKind

    init(kind: DeliveryKind, source: UnsafeMutablePointer<GSource>) {
        self.kind = kind
        self.source = g_source_ref(source)
    }

    deinit {
        g_source_unref(source)
    }

    func modeDidChange(to mode: RunLoopMode) {
        let priority = EventSource.Priority.of(kind, in: mode).rawValue
        // Where it stays the same, no list is sorted again.
        if g_source_get_priority(source) != priority { g_source_set_priority(source, priority) }
    }
}

/// The core is stored behind GLib's own struct, which `g_source_new` allocates with the room for it.
private let slotOffset = MemoryLayout<GSource>.stride

private func slot(of source: UnsafeMutablePointer<GSource>?) -> Unmanaged<SourceCore> {
    Unmanaged.fromOpaque(
        UnsafeRawPointer(source!).load(fromByteOffset: slotOffset, as: UnsafeMutableRawPointer.self))
}

/// GLib keeps the address of the function table for as long as a source of it lives; this one lives for ever.
private struct SourceFunctions: @unchecked Sendable {
    // Sendable: written once, before anyone can see it.
    let pointer: UnsafeMutablePointer<GSourceFuncs>

    init() {
        pointer = .allocate(capacity: 1)
        pointer.initialize(to: GSourceFuncs())
        pointer.pointee.prepare = { source, timeout in
            let (isReady, mayWait) = slot(of: source).takeUnretainedValue().prepare()
            timeout?.pointee = mayWait ? -1 : 0
            return isReady ? 1 : 0
        }
        pointer.pointee.check = { source in slot(of: source).takeUnretainedValue().check() ? 1 : 0 }
        pointer.pointee.dispatch = { source, _, _ in
            slot(of: source).takeUnretainedValue().dispatch()
            return 1
        }
        pointer.pointee.finalize = { source in slot(of: source).release() }
    }
}

private let sourceFunctions = SourceFunctions()
