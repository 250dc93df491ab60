// SPDX-License-Identifier: Apache-2.0
import CGLib
import Synchronization

/// What belongs to a `GMainContext` beyond what GLib keeps: its mode, its turns (M3), and whether it is still there (T2).
///
/// It hangs on the context as the data of a source that is never ready, so it lives exactly as long as the context,
/// whoever made that, and every ``MainContext`` of the same context finds the same one. Objects that outlive a context
/// hold this instead of the context, which they would otherwise keep alive.
///
/// Threads: any.
final class ContextState: SourceHandler, Sendable {
    /// Who is told when the mode changes.
    protocol ModeFollower: AnyObject, Sendable {
        func modeDidChange(to mode: RunLoopMode)
    }

    private struct State: @unchecked Sendable {
        // Sendable: it is touched only under the lock, and what GLib is called with the pointer for locks itself.
        /// Nil when the context is gone.
        var context: OpaquePointer?
        /// What was entered and not left, on top of the default mode.
        var entered: [RunLoopMode] = []
        var commonModes: Set<RunLoopMode> = [.default, .modalPanel, .eventTracking]
        var followers: [ObjectIdentifier: WeakFollower] = [:]
        var attachments: [ObjectIdentifier: any AnyObject & Sendable] = [:]
        var onEnd: [@Sendable () -> Void] = []

        var mode: RunLoopMode { entered.last ?? .default }
    }

    private struct WeakFollower {
        weak var follower: (any ModeFollower)?
    }

    private let state: Locked<State>
    /// Counts what can change which modes are allowed, so that a source need not compare texts in every iteration.
    private let generations = Atomic<Int>(0)
    private let ended = Atomic(false)
    /// How the sources that share the loop take turns with all others.
    let turns: LoopTurns

    /// What the context's timers go by; nil for the system's clock.
    let clock: (any LoopClock)?

    private init(_ context: OpaquePointer, clock: (any LoopClock)?, turnClock: @escaping LoopTurns.Clock) {
        state = Locked(State(context: context))
        self.clock = clock
        turns = LoopTurns(clock: turnClock)
    }

    // MARK: The context's life

    /// The state of a context, which the caller keeps alive meanwhile.
    ///
    /// - Parameter turnClock: what its turns are measured by, if it is new.
    static func of(
        _ context: OpaquePointer, turnClock: @escaping LoopTurns.Clock = SteadyClock.nanoseconds
    ) -> ContextState {
        // The lock keeps two threads from giving one context two states.
        creation.withLock { _ in
            let found = g_main_context_find_source_by_funcs_user_data(
                context, customSourceFunctions, anchorCallback.mark)
            guard let found else { return anchored(to: context, turnClock: turnClock) }
            return unsafeDowncast(found.handler, to: ContextState.self)
        }
    }

    private static let creation = Locked(())

    /// - Parameter clock: what the timers and turns of the context, which has no state yet, go by.
    static func anchored(to context: OpaquePointer, clock: any LoopClock) -> ContextState {
        anchored(to: context, clock: clock) { clock.microseconds * 1000 }
    }

    private static func anchored(
        to context: OpaquePointer, clock: (any LoopClock)? = nil, turnClock: @escaping LoopTurns.Clock
    ) -> ContextState {
        let state = ContextState(context, clock: clock, turnClock: turnClock)
        let source = UnsafeMutablePointer<GSource>.make(state, priority: Int32.max)
        // GLib finds only sources that have a callback, and releases that when it destroys the source, which holds the
        // state longer than that.
        g_source_set_callback_indirect(
            source, Unmanaged.passUnretained(state).toOpaque(), anchorCallback.functions)
        g_source_attach(source, context)
        // The context holds it.
        g_source_unref(source)
        return state
    }

    fileprivate func contextIsEnding() {
        ended.store(true, ordering: .releasing)
        let (attachments, actions) = state.withLock { state in
            state.context = nil
            state.followers = [:]
            defer {
                state.attachments = [:]
                state.onEnd = []
            }
            return (state.attachments, state.onEnd)
        }
        for action in actions { action() }
        withExtendedLifetime(attachments) {}
    }

    /// Whether the context is gone, or going.
    var isEnded: Bool {
        ended.load(ordering: .acquiring)
    }

    /// Ends a poll that is under way in another thread, if the context is still there.
    func wakeUp() {
        state.withLock { state in
            guard let context = state.context else { return }
            // A source of this context that is being dispatched here: the loop asks all sources again before it polls.
            if g_main_current_source() != nil, g_main_context_is_owner(context) != 0 { return }
            g_main_context_wakeup(context)
        }
    }

    /// Takes a source off its context, unless that is gone already and has done so itself, and releases it.
    func end(_ source: UnsafeMutablePointer<GSource>) {
        keepingContext(of: source) { isThere in
            if isThere { g_source_destroy(source) }
            g_source_unref(source)
        }
    }

    /// Releases a reference to a source of this context, also when that is gone.
    func release(_ source: UnsafeMutablePointer<GSource>) {
        keepingContext(of: source) { _ in g_source_unref(source) }
    }

    /// Calls `body`, which destroys or releases a source, such that its context is not freed meanwhile.
    ///
    /// Before GLib 2.86 `g_source_destroy` and `g_source_unref` read the source's context, and only then lock it. Where
    /// another thread releases the last reference to the context in between, they lock memory that has been freed, and
    /// write into it (GNOME/glib#803). Under the lock here that can't happen: a context destroys its anchor before it is
    /// freed, and `contextIsEnding` waits for the lock.
    ///
    /// From then on GLib holds the context in these functions by itself. So theirs may be the last reference, and
    /// `contextIsEnding` be called from inside of them: then no lock may be held.
    ///
    /// - Parameter body: gets whether the context is there.
    private func keepingContext(of source: UnsafeMutablePointer<GSource>, _ body: (_ isThere: Bool) -> Void) {
        guard !Self.isContextHeldByGLib else { return body(!isEnded) }
        // What the source owns ends after the lock: it may run code of its own then.
        withExtendedLifetime(source.handler) {
            state.withLock { body($0.context != nil) }
        }
    }

    private static let isContextHeldByGLib = glib_check_version(2, 86, 0) == nil

    /// Has `action` run when the context ends; at once when it is gone.
    func atEnd(_ action: @escaping @Sendable () -> Void) {
        let isGone = state.withLock { state in
            if state.context != nil { state.onEnd.append(action) }
            return state.context == nil
        }
        if isGone { action() }
    }

    /// The context's only object of a type, made when it is first asked for. Nil when the context is gone.
    func attachment<Value: AnyObject & Sendable>(_ type: Value.Type, _ make: () -> Value) -> Value? {
        func find(_ state: inout State) -> Value? {
            state.attachments[ObjectIdentifier(type)].map { unsafeDowncast($0, to: type) }
        }
        if let found = state.withLock({ find(&$0) }) { return found }
        // Made with no lock held: it may attach sources.
        let made = make()
        return state.withLock { state in
            guard state.context != nil else { return nil }
            if let found = find(&state) { return found }
            state.attachments[ObjectIdentifier(type)] = made
            return made
        }
    }

    // MARK: Modes

    var mode: RunLoopMode {
        state.withLock { $0.mode }
    }

    var commonModes: Set<RunLoopMode> {
        state.withLock { $0.commonModes }
    }

    /// Goes up whenever ``allows(_:)`` may answer otherwise than before.
    var generation: Int {
        generations.load(ordering: .acquiring)
    }

    /// Whether a source of these modes may be dispatched in the current one.
    func allows(_ modes: Set<RunLoopMode>) -> Bool {
        state.withLock { state in
            let mode = state.mode
            return modes.contains(mode) || (modes.contains(.common) && state.commonModes.contains(mode))
        }
    }

    func push(_ mode: RunLoopMode) {
        change { $0.entered.append(mode) }
    }

    /// - Returns: whether the mode had been entered.
    func pop(_ mode: RunLoopMode) -> Bool {
        change { state in
            guard let index = state.entered.lastIndex(of: mode) else { return false }
            state.entered.remove(at: index)
            return true
        }
    }

    func addCommonMode(_ mode: RunLoopMode) {
        change { _ = $0.commonModes.insert(mode) }
    }

    private func change<Result: Sendable>(_ body: (inout State) -> Result) -> Result {
        let (result, mode, followers) = state.withLock { state in
            let before = state.mode
            let result = body(&state)
            generations.add(1, ordering: .acquiringAndReleasing)
            return (result, state.mode, state.mode == before ? [] : state.followers.values.map(\.follower))
        }
        for follower in followers { follower?.modeDidChange(to: mode) }
        // The loop asks its sources again, also when another thread changed the mode.
        wakeUp()
        return result
    }

    func add(_ follower: some ModeFollower) {
        state.withLock { $0.followers[ObjectIdentifier(follower)] = WeakFollower(follower: follower) }
    }

    func remove(_ follower: some ModeFollower) {
        state.withLock { _ = $0.followers.removeValue(forKey: ObjectIdentifier(follower)) }
    }
}

/// GLib keeps the address of these functions for as long as an anchor lives; they live for ever.
private struct AnchorCallback: @unchecked Sendable {
    // Sendable: written once, before anyone can see it.
    let functions: UnsafeMutablePointer<GSourceCallbackFuncs>

    /// What GLib finds an anchor by, among the sources that have the same functions.
    var mark: gpointer { gpointer(functions) }

    init() {
        functions = .allocate(capacity: 1)
        functions.initialize(to: GSourceCallbackFuncs())
        functions.pointee.ref = { _ in }
        // The source is destroyed when the context ends, while the context's own memory is still there; its handler is
        // released when that is freed already.
        functions.pointee.unref = { state in
            Unmanaged<ContextState>.fromOpaque(state!).takeUnretainedValue().contextIsEnding()
        }
        functions.pointee.get = { _, _, function, data in
            function?.pointee = { _ in 1 }
            data?.pointee = anchorCallback.mark
        }
    }
}

private let anchorCallback = AnchorCallback()
