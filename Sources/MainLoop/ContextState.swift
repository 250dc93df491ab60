// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// What belongs to a `GMainContext` beyond what GLib keeps: its mode, its turns (M3), and whether it is still there (T2).
///
/// It hangs on the context as the data of a source that is never ready, so it lives exactly as long as the context,
/// whoever made that, and every ``MainContext`` of the same context finds the same one. Objects that outlive a context
/// hold this instead of the context, which they would otherwise keep alive.
///
/// Threads: any.
final class ContextState: SourceHandler, Sendable {
    /// Is called when the mode has changed, by several threads at once, perhaps. The mode itself is not handed over: another
    /// change may have come meanwhile.
    protocol ModeFollower: AnyObject, Sendable {
        func modeDidChange()
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
        /// Nil also while the context is ending, or is held only by others than objects of ours.
        weak var reference: ContextReference?
        /// References to sources that nobody can release at this moment.
        var deferred: [Release] = []
        /// References that are being given up.
        var releases = 0
        /// Whether somebody wanted to wake it meanwhile.
        var isToBeWoken = false

        var mode: RunLoopMode { entered.last ?? .default }
    }

    private struct WeakFollower {
        weak var follower: (any ModeFollower)?
    }

    private let state: Locked<State>
    /// Counts what can change which modes are allowed, so that a source need not compare texts in every iteration.
    private let generations = Atomic<Int>(0)
    private let ended = Atomic(false)
    /// Whether any may be deferred, so that the loop takes no lock in each iteration.
    private let isAnyDeferred = Atomic(false)
    /// How the sources that share the loop take turns with all others.
    let turns: LoopTurns

    /// What the context's timers go by; nil for the system's clock.
    let clock: (any LoopClock)?

    private init(_ context: OpaquePointer, clock: (any LoopClock)?, turnClock: LoopTurns.Clock?) {
        state = Locked(State(context: context))
        self.clock = clock
        turns = LoopTurns(clock: turnClock)
    }

    // MARK: The context's life

    /// The state of a context, which the caller keeps alive meanwhile.
    ///
    /// - Parameter turnClock: what its turns are measured by, if it is new.
    static func of(
        _ context: OpaquePointer, turnClock: LoopTurns.Clock? = nil
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
        to context: OpaquePointer, clock: (any LoopClock)? = nil, turnClock: LoopTurns.Clock?
    ) -> ContextState {
        let state = ContextState(context, clock: clock, turnClock: turnClock)
        // The first that the loop asks, so that what is deferred does not wait for others.
        let source = UnsafeMutablePointer<GSource>.make(state, priority: Int32.min)
        // GLib finds only sources that have a callback, and releases that when it destroys the source, which holds the
        // state longer than that.
        g_source_set_callback_indirect(
            source, Unmanaged.passUnretained(state).toOpaque(), anchorCallback.functions)
        source.attach(to: context)
        // The context holds it.
        g_source_unref(source)
        return state
    }

    fileprivate func contextIsEnding() {
        ended.store(true, ordering: .releasing)
        let (attachments, actions, deferred) = state.withLock { state in
            state.context = nil
            state.followers = [:]
            defer {
                state.attachments = [:]
                state.onEnd = []
                state.deferred = []
            }
            return (state.attachments, state.onEnd, state.deferred)
        }
        for release in deferred { release.carryOut(isContextThere: false) }
        for action in actions { action() }
        withExtendedLifetime(attachments) {}
    }

    /// Whether the context is gone, or going.
    var isEnded: Bool {
        ended.load(ordering: .acquiring)
    }

    /// Ends a poll that is under way in another thread, if the context is still there.
    func wakeUp() {
        let reference: ContextReference? = state.withLock { state in
            guard let context = state.context else { return nil }
            // A source of this context that is being dispatched here: the loop asks all sources again before it polls.
            if g_main_current_source() != nil, g_main_context_is_owner(context) != 0 { return nil }
            if let reference = state.reference { return reference }
            // GLib complains of one that is ending, which that reference may have been the last of.
            if state.releases > 0 { state.isToBeWoken = true } else { g_main_context_wakeup(context) }
            return nil
        }
        // Not under the lock, for which the end of the context waits: it may be the last reference by now.
        if let reference { g_main_context_wakeup(reference.pointer) }
    }

    // MARK: The end of sources

    /// The reference that all objects share which stand for the context.
    ///
    /// - Parameter pointer: the context; the caller's reference to it is taken over.
    func reference(takingOver pointer: OpaquePointer) -> ContextReference {
        let (reference, isNew) = state.withLock { state in
            if let reference = state.reference { return (reference, false) }
            let reference = ContextReference(takingOver: pointer, of: self)
            state.reference = reference
            return (reference, true)
        }
        // The other one keeps the context.
        if !isNew { g_main_context_unref(pointer) }
        carryOutDeferred()
        return reference
    }

    /// A reference is given up, which may be the last.
    fileprivate func giveUp(_ pointer: OpaquePointer) {
        state.withLock { $0.releases += 1 }
        g_main_context_unref(pointer)
        let isToBeWoken = state.withLock { state in
            state.releases -= 1
            guard state.releases == 0 else { return false }
            defer { state.isToBeWoken = false }
            return state.isToBeWoken
        }
        // Others hold it, if it is there.
        if isToBeWoken { wakeUp() }
    }

    /// Takes a source off its context, unless that is gone already and has done so itself, and releases it. Its handler
    /// is not called any more.
    func end(_ source: UnsafeMutablePointer<GSource>) {
        source.silence()
        release(Release(source: source, isToBeDestroyed: true))
    }

    /// Releases a reference to a source of this context, also when that is gone.
    func release(_ source: UnsafeMutablePointer<GSource>) {
        release(Release(source: source, isToBeDestroyed: false))
    }

    /// A reference to a source that is to be released, by somebody who knows that its context is there, or gone.
    private struct Release {
        let source: UnsafeMutablePointer<GSource>
        let isToBeDestroyed: Bool

        /// - Parameter isContextThere: and stays so meanwhile; else it has let go of all its sources.
        func carryOut(isContextThere: Bool) {
            if isToBeDestroyed, isContextThere { g_source_destroy(source) }
            g_source_unref(source)
        }
    }

    /// Releases a source at a moment at which its context does not end on another thread.
    ///
    /// Before GLib 2.86 `g_source_destroy` and `g_source_unref` read the source's context, and only then lock it; and a
    /// context that ends takes itself from each source before it refers to it. A thread that calls them just then locks
    /// memory that has been freed, or frees a source of which the context still makes use (GNOME/glib#803). So they are
    /// called only by somebody who has a reference to the context, or by the end of the context itself, which comes to
    /// ``contextIsEnding()`` when it refers to all its sources. From 2.86 on GLib holds the context by itself.
    private func release(_ release: Release) {
        guard !Self.isContextHeldByGLib else { return release.carryOut(isContextThere: !isEnded) }
        enum Now {
            case held(ContextReference)
            case isOver
            case isDeferred
        }
        let now: Now = state.withLock { state in
            guard state.context != nil else { return .isOver }
            if let reference = state.reference { return .held(reference) }
            // The context is ending, or only others hold it, who are not asked.
            state.deferred.append(release)
            return .isDeferred
        }
        switch now {
        case .held(let reference):
            release.carryOut(isContextThere: true)
            withExtendedLifetime(reference) {}
        case .isOver: release.carryOut(isContextThere: false)
        case .isDeferred:
            isAnyDeferred.store(true, ordering: .releasing)
            wakeUp()
        }
    }

    /// Releases what nobody could release so far. The caller holds the context, or runs it.
    private func carryOutDeferred() {
        guard isAnyDeferred.load(ordering: .acquiring),
            isAnyDeferred.exchange(false, ordering: .acquiringAndReleasing)
        else { return }
        let deferred = state.withLock { state in
            defer { state.deferred = [] }
            return state.deferred
        }
        for release in deferred { release.carryOut(isContextThere: true) }
    }

    /// The thread that runs the context holds it.
    func prepare(_ source: Source) -> SourceReadiness {
        carryOutDeferred()
        return .waiting
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
        let (result, followers) = state.withLock { state in
            let before = state.mode
            let result = body(&state)
            generations.add(1, ordering: .acquiringAndReleasing)
            return (result, state.mode == before ? [] : state.followers.values.map(\.follower))
        }
        for follower in followers { follower?.modeDidChange() }
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

/// The reference to a `GMainContext` that all objects which stand for it share.
///
/// A strong reference to it, taken from the context's state, holds the context: unlike GLib's own count this one can be
/// asked whether it is there.
///
/// Threads: any.
final class ContextReference: @unchecked Sendable {
    // Sendable: GMainContext counts its references itself; the pointer never changes after `init`.
    let pointer: OpaquePointer
    private let state: ContextState

    fileprivate init(takingOver pointer: OpaquePointer, of state: ContextState) {
        self.pointer = pointer
        self.state = state
    }

    deinit {
        state.giveUp(pointer)
    }
}
