// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// The state that this module adds to a `GMainContext`: its run-loop mode, its scheduling cycles (``LoopCycles``, M3),
/// and whether the context still exists (T2). ``MainContext`` and all sources of this module use it.
///
/// The context holds the state as the data of a source that is never ready, the *anchor*. Therefore the state lasts as
/// long as the context, regardless of the context's creator, and every ``MainContext`` of the same context finds the
/// same state. Sources and observers hold this state instead of the context, because a reference to the context would
/// keep the context alive.
///
/// A large part of this type removes sources safely while their context may end on another thread; the private function
/// `release` states the problem.
///
/// Threads: any.
final class ContextState: SourceHandler, Sendable {
    /// An object that is called when the mode has changed, possibly by several threads at once. The mode is not passed,
    /// because it may have changed again meanwhile.
    protocol ModeFollower: AnyObject, Sendable {
        func modeDidChange()
    }

    private struct State: @unchecked Sendable {
        // Sendable: accessed only under the lock; the GLib functions that use the pointer do their own locking.
        /// Nil when the context is gone.
        var context: OpaquePointer?
        /// The modes that were entered and not left, on top of the default mode.
        var entered: [RunLoopMode] = []
        var commonModes: Set<RunLoopMode> = [.default, .modalPanel, .eventTracking]
        var followers: [ObjectIdentifier: WeakFollower] = [:]
        /// The context's only object of each type, by the type; see ``attachment(_:_:)``.
        var attachments: [ObjectIdentifier: any AnyObject & Sendable] = [:]
        /// The actions to run when the context ends.
        var onEnd: [@Sendable () -> Void] = []
        /// The reference that all ``MainContext`` objects of the context share. Nil while the context is ending, and
        /// when only code outside of this library holds the context.
        weak var reference: ContextReference?
        /// The sources that can't be released at this moment.
        var deferred: [Release] = []
        /// The number of calls of ``releaseReference(_:)`` in progress, each of which may release the context's last
        /// reference.
        var releases = 0
        /// Whether a wake-up was requested during such a call.
        var isToBeWoken = false

        var mode: RunLoopMode { entered.last ?? .default }
    }

    private struct WeakFollower {
        weak var follower: (any ModeFollower)?
    }

    private let state: Locked<State>
    /// A counter of the changes of the mode or the common modes. A source compares it instead of mode names in every
    /// iteration.
    private let generations = Atomic<Int>(0)
    private let ended = Atomic(false)
    /// Whether `deferred` may have entries. The loop reads it in each iteration without the lock.
    private let isAnyDeferred = Atomic(false)
    /// The scheduling cycles of the context, which divide its time between sources.
    let cycles: LoopCycles

    /// The clock of the context's timers; nil for the system's clock.
    let clock: (any LoopClock)?

    private init(_ context: OpaquePointer, clock: (any LoopClock)?, cycleClock: LoopCycles.Clock?) {
        state = Locked(State(context: context))
        self.clock = clock
        cycles = LoopCycles(clock: cycleClock)
    }

    // MARK: Life of the context

    /// Returns the state of a context, and creates it on first use. The caller keeps the context alive during the call.
    ///
    /// - Parameter cycleClock: the clock that measures the context's cycles, used only if the state is new; nil for the
    ///   system's clock.
    static func of(
        _ context: OpaquePointer, cycleClock: LoopCycles.Clock? = nil
    ) -> ContextState {
        // The lock keeps two threads from giving one context two states. GLib searches the context's sources for one
        // with these functions and this mark: the anchor, whose handler is the state.
        creation.withLock { _ in
            let found = g_main_context_find_source_by_funcs_user_data(
                context, customSourceFunctions, anchorCallback.mark)
            guard let found else { return anchored(to: context, cycleClock: cycleClock) }
            return unsafeDowncast(found.handler, to: ContextState.self)
        }
    }

    private static let creation = Locked(())

    /// Creates the state of a context that has none yet, with a clock for its timers and cycles.
    static func anchored(to context: OpaquePointer, clock: any LoopClock) -> ContextState {
        anchored(to: context, clock: clock) { clock.microseconds * 1000 }
    }

    /// Creates the state of a context, and attaches the anchor that holds it.
    private static func anchored(
        to context: OpaquePointer, clock: (any LoopClock)? = nil, cycleClock: LoopCycles.Clock?
    ) -> ContextState {
        let state = ContextState(context, clock: clock, cycleClock: cycleClock)
        // GLib calls `prepare` in order of priority: deferred releases are carried out first.
        let source = UnsafeMutablePointer<GSource>.make(state, priority: Int32.min)
        // `g_main_context_find_source_by_funcs_user_data` finds only sources with a callback. The release of the
        // callback also reports the end of the context. At that moment the source still holds the state.
        g_source_set_callback_indirect(
            source, Unmanaged.passUnretained(state).toOpaque(), anchorCallback.functions)
        source.attach(to: context)
        // The context holds the source.
        g_source_unref(source)
        return state
    }

    /// Carries out the deferred releases and the actions for the end of the context. GLib's end of the context calls
    /// it.
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

    /// Whether the context has ended or is ending.
    var isEnded: Bool {
        ended.load(ordering: .acquiring)
    }

    /// Wakes the thread that polls for the context, if the context still exists.
    func wakeUp() {
        let reference: ContextReference? = state.withLock { state in
            guard let context = state.context else { return nil }
            // This thread is dispatching a source of the context: the loop asks all sources again before it polls.
            if g_main_current_source() != nil, g_main_context_is_owner(context) != 0 { return nil }
            if let reference = state.reference { return reference }
            // No object of this library holds the context. A reference that is being given up may be the last one, and
            // a wake-up of an ending context is an error in GLib. `releaseReference` then repeats the wake-up if the
            // context remains.
            if state.releases > 0 { state.isToBeWoken = true } else { g_main_context_wakeup(context) }
            return nil
        }
        // Without the lock: this may be the last reference by now, and the context's end would wait for the lock.
        if let reference { g_main_context_wakeup(reference.pointer) }
    }

    // MARK: End of sources

    /// Returns the shared reference of all objects that represent the context.
    ///
    /// - Parameter pointer: the context; the function takes over the caller's reference to it.
    func reference(takingOver pointer: OpaquePointer) -> ContextReference {
        let (reference, isNew) = state.withLock { state in
            if let reference = state.reference { return (reference, false) }
            let reference = ContextReference(takingOver: pointer, of: self)
            state.reference = reference
            return (reference, true)
        }
        // The existing reference keeps the context alive, so the caller's own is not needed.
        if !isNew { g_main_context_unref(pointer) }
        carryOutDeferred()
        return reference
    }

    /// Releases this library's reference to the context, which may be the last one.
    fileprivate func releaseReference(_ pointer: OpaquePointer) {
        state.withLock { $0.releases += 1 }
        g_main_context_unref(pointer)
        let isToBeWoken = state.withLock { state in
            state.releases -= 1
            guard state.releases == 0 else { return false }
            defer { state.isToBeWoken = false }
            return state.isToBeWoken
        }
        // A wake-up was postponed above. The state knows by now whether the context still exists.
        if isToBeWoken { wakeUp() }
    }

    /// Removes a source from its context and releases the source. Its handler is not called any more. If the context is
    /// gone, it has removed the source already.
    func end(_ source: UnsafeMutablePointer<GSource>) {
        source.silence()
        release(Release(source: source, isToBeDestroyed: true))
    }

    /// Releases a reference to a source of this context, even if the context is gone.
    func release(_ source: UnsafeMutablePointer<GSource>) {
        release(Release(source: source, isToBeDestroyed: false))
    }

    /// A source to be released when the context is known either to exist or to be gone.
    private struct Release {
        let source: UnsafeMutablePointer<GSource>
        /// Whether the source is also removed from its context.
        let isToBeDestroyed: Bool

        /// - Parameter isContextThere: true if the context exists during the call; false if the context is gone and has
        ///   removed all its sources.
        func carryOut(isContextThere: Bool) {
            if isToBeDestroyed, isContextThere { g_source_destroy(source) }
            g_source_unref(source)
        }
    }

    /// Releases a source at a moment when its context can't end on another thread.
    ///
    /// Before GLib 2.86, `g_source_destroy` and `g_source_unref` read the source's context and only then lock it. A
    /// context that ends clears its pointer in each source before it takes a reference to that source. A thread that
    /// calls the functions at that moment locks freed memory, or frees a source that the context still uses
    /// (GNOME/glib#803).
    ///
    /// Therefore these functions are called only in one of two situations: the caller has a reference to the context,
    /// or the context's end has called ``contextIsEnding()``, when it has references to all its sources. Otherwise the
    /// release is deferred until one of them occurs. Since version 2.86 GLib itself holds the context during the calls,
    /// so nothing is deferred.
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
            // The context is ending, or only code outside of this library holds it.
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

    /// Carries out the deferred releases. The caller has a reference to the context, or runs it.
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

    /// The `prepare` function of the anchor: carries out deferred releases in each iteration of the loop.
    func prepare(_ source: Source) -> SourceReadiness {
        carryOutDeferred()
        return .waiting
    }

    private static let isContextHeldByGLib = glib_check_version(2, 86, 0) == nil

    /// Runs `action` when the context ends, or at once when it is gone.
    func atEnd(_ action: @escaping @Sendable () -> Void) {
        let isGone = state.withLock { state in
            if state.context != nil { state.onEnd.append(action) }
            return state.context == nil
        }
        if isGone { action() }
    }

    /// Returns the context's only object of a type, which is created on first use; nil when the context is gone.
    func attachment<Value: AnyObject & Sendable>(_ type: Value.Type, _ make: () -> Value) -> Value? {
        func find(_ state: inout State) -> Value? {
            state.attachments[ObjectIdentifier(type)].map { unsafeDowncast($0, to: type) }
        }
        if let found = state.withLock({ find(&$0) }) { return found }
        // The object is created with no lock held, because it may attach sources.
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

    /// A counter that rises whenever the result of ``allows(_:)`` may change.
    var generation: Int {
        generations.load(ordering: .acquiring)
    }

    /// Whether a source of these modes may be dispatched in the current mode.
    func allows(_ modes: Set<RunLoopMode>) -> Bool {
        state.withLock { state in
            let mode = state.mode
            return modes.contains(mode) || (modes.contains(.common) && state.commonModes.contains(mode))
        }
    }

    /// Enters a mode; see ``MainContext/pushMode(_:)``.
    func push(_ mode: RunLoopMode) {
        change { $0.entered.append(mode) }
    }

    /// Leaves a mode; see ``MainContext/popMode(_:)``.
    ///
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

    /// Changes the modes. If the current mode is then another one, the followers are notified with no lock held.
    private func change<Result: Sendable>(_ body: (inout State) -> Result) -> Result {
        let (result, followers) = state.withLock { state in
            let before = state.mode
            let result = body(&state)
            generations.add(1, ordering: .acquiringAndReleasing)
            return (result, state.mode == before ? [] : state.followers.values.map(\.follower))
        }
        for follower in followers { follower?.modeDidChange() }
        // The loop asks its sources again, even if another thread changed the mode.
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

/// The callback functions of an anchor, the source that holds a ``ContextState``. GLib keeps their address as long as
/// an anchor lives; they are never freed.
private struct AnchorCallback: @unchecked Sendable {
    // Sendable: written once, before other threads can see it.
    let functions: UnsafeMutablePointer<GSourceCallbackFuncs>

    /// The mark by which GLib finds an anchor among the sources with the same functions.
    var mark: gpointer { gpointer(functions) }

    init() {
        functions = .allocate(capacity: 1)
        functions.initialize(to: GSourceCallbackFuncs())
        functions.pointee.ref = { _ in }
        // The context destroys the anchor when the context ends, while its memory still exists. GLib then calls this
        // function. The anchor's handler, the state, is released only after that memory is freed.
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

/// The shared reference of all objects that represent the same `GMainContext`.
///
/// It owns one GLib reference to the context. The context's state has a weak reference to this object, and so can find
/// out whether the library still holds the context. GLib's own reference count can't be read.
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
        state.releaseReference(pointer)
    }
}
