// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// The state of a `GMainContext` beyond GLib's own: its mode, its turns (M3), and whether it still exists (T2).
///
/// The context holds it as the data of a source that is never ready. Therefore it lasts exactly as long as the context,
/// regardless of the context's creator, and every ``MainContext`` of the same context finds the same state. Objects
/// that outlive a context hold this state instead of the context, which they would otherwise keep alive.
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
        var attachments: [ObjectIdentifier: any AnyObject & Sendable] = [:]
        var onEnd: [@Sendable () -> Void] = []
        /// Nil also while the context is ending, or when only code outside of this library holds it.
        weak var reference: ContextReference?
        /// The references to sources that can't be released at this moment.
        var deferred: [Release] = []
        /// The number of references that are being given up.
        var releases = 0
        /// Whether a wake-up was requested meanwhile.
        var isToBeWoken = false

        var mode: RunLoopMode { entered.last ?? .default }
    }

    private struct WeakFollower {
        weak var follower: (any ModeFollower)?
    }

    private let state: Locked<State>
    /// A counter of the changes that affect allowed modes, so that a source need not compare texts in every iteration.
    private let generations = Atomic<Int>(0)
    private let ended = Atomic(false)
    /// Whether any release may be deferred, so that the loop takes no lock in each iteration.
    private let isAnyDeferred = Atomic(false)
    /// The turns in which sources share the loop with all others.
    let turns: LoopTurns

    /// The clock of the context's timers; nil for the system's clock.
    let clock: (any LoopClock)?

    private init(_ context: OpaquePointer, clock: (any LoopClock)?, turnClock: LoopTurns.Clock?) {
        state = Locked(State(context: context))
        self.clock = clock
        turns = LoopTurns(clock: turnClock)
    }

    // MARK: Life of the context

    /// Returns the state of a context, which the caller keeps alive meanwhile.
    ///
    /// - Parameter turnClock: the clock that measures its turns, if the state is new.
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

    /// - Parameter clock: the clock for the timers and turns of the context, which has no state yet.
    static func anchored(to context: OpaquePointer, clock: any LoopClock) -> ContextState {
        anchored(to: context, clock: clock) { clock.microseconds * 1000 }
    }

    private static func anchored(
        to context: OpaquePointer, clock: (any LoopClock)? = nil, turnClock: LoopTurns.Clock?
    ) -> ContextState {
        let state = ContextState(context, clock: clock, turnClock: turnClock)
        // The loop asks this source first, so that deferred releases do not wait for others.
        let source = UnsafeMutablePointer<GSource>.make(state, priority: Int32.min)
        // GLib finds only sources with a callback. It releases the callback when it destroys the source; the source
        // holds the state longer than that.
        g_source_set_callback_indirect(
            source, Unmanaged.passUnretained(state).toOpaque(), anchorCallback.functions)
        source.attach(to: context)
        // The context holds the source.
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

    /// Whether the context has ended or is ending.
    var isEnded: Bool {
        ended.load(ordering: .acquiring)
    }

    /// Ends a poll that another thread is in, if the context still exists.
    func wakeUp() {
        let reference: ContextReference? = state.withLock { state in
            guard let context = state.context else { return nil }
            // This thread is dispatching a source of the context: the loop asks all sources again before it polls.
            if g_main_current_source() != nil, g_main_context_is_owner(context) != 0 { return nil }
            if let reference = state.reference { return reference }
            // GLib complains about a context that is ending; the reference that is being given up may be its last.
            if state.releases > 0 { state.isToBeWoken = true } else { g_main_context_wakeup(context) }
            return nil
        }
        // Not under the lock, for which the end of the context waits: this may be the last reference by now.
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
        // The existing reference keeps the context.
        if !isNew { g_main_context_unref(pointer) }
        carryOutDeferred()
        return reference
    }

    /// Gives up a reference, which may be the last.
    fileprivate func giveUp(_ pointer: OpaquePointer) {
        state.withLock { $0.releases += 1 }
        g_main_context_unref(pointer)
        let isToBeWoken = state.withLock { state in
            state.releases -= 1
            guard state.releases == 0 else { return false }
            defer { state.isToBeWoken = false }
            return state.isToBeWoken
        }
        // Other references hold the context, if it still exists.
        if isToBeWoken { wakeUp() }
    }

    /// Removes a source from its context and releases it. A context that is gone has removed it already. The source's
    /// handler is not called any more.
    func end(_ source: UnsafeMutablePointer<GSource>) {
        source.silence()
        release(Release(source: source, isToBeDestroyed: true))
    }

    /// Releases a reference to a source of this context, even if the context is gone.
    func release(_ source: UnsafeMutablePointer<GSource>) {
        release(Release(source: source, isToBeDestroyed: false))
    }

    /// A reference to a source that is to be released, once the context is known to exist or to be gone.
    private struct Release {
        let source: UnsafeMutablePointer<GSource>
        let isToBeDestroyed: Bool

        /// - Parameter isContextThere: whether the context exists, and remains meanwhile; otherwise it has released all
        ///   its sources.
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
    /// Therefore only code with a reference to the context calls them, or the end of the context itself, which calls
    /// ``contextIsEnding()`` when it has references to all its sources. Since 2.86, GLib itself holds the context.
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

    /// Carries out the deferred releases. The caller holds the context, or runs it.
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

    /// Carries out deferred releases. The thread that runs the context holds it.
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

/// The callback functions of an anchor. GLib keeps their address as long as an anchor lives; they are never freed.
private struct AnchorCallback: @unchecked Sendable {
    // Sendable: written once, before other threads can see it.
    let functions: UnsafeMutablePointer<GSourceCallbackFuncs>

    /// The mark by which GLib finds an anchor among the sources with the same functions.
    var mark: gpointer { gpointer(functions) }

    init() {
        functions = .allocate(capacity: 1)
        functions.initialize(to: GSourceCallbackFuncs())
        functions.pointee.ref = { _ in }
        // The context destroys the source when it ends, while the context's own memory still exists. The handler is
        // released after that memory is freed.
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
/// A strong reference to this object, taken from the context's state, holds the context. In contrast to GLib's own
/// count, the weak reference in the state shows whether the object exists.
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
