// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A `GMainContext`: the set of event sources that one thread at a time dispatches.
///
/// Threads: every member may be used from any thread, as GLib documents for `GMainContext`.
public final class MainContext: @unchecked Sendable {
    // Sendable: GMainContext locks itself; the pointer never changes after `init`.
    let pointer: OpaquePointer
    /// The state that all objects of this class share for the same `GMainContext`.
    let state: ContextState
    private let reference: ContextReference

    /// The context of the main thread (`g_main_context_default`).
    public static let `default` = MainContext(owning: g_main_context_ref(g_main_context_default()))

    /// A new context that no thread owns yet.
    public convenience init() {
        self.init(owning: g_main_context_new())
    }

    /// Creates a context whose timers and scheduling cycles use `clock`, for a simulation. The thread that runs the
    /// context must iterate it when the clock reaches the time of a timer.
    package init(clock: any LoopClock) {
        pointer = g_main_context_new()
        state = .anchored(to: pointer, clock: clock)
        reference = state.reference(takingOver: pointer)
    }

    /// Creates a context whose scheduling cycles (``LoopCycles``) use `cycleClock`, in nanoseconds; for tests.
    package convenience init(cycleClock: @escaping @Sendable () -> Int64) {
        let pointer = g_main_context_new()!
        // `init(owning:)` would create the state with the standard clock, so the state is created first.
        _ = ContextState.of(pointer, cycleClock: cycleClock)
        self.init(owning: pointer)
    }

    /// Creates an object for an existing `GMainContext`, and takes over one reference to it.
    init(owning pointer: OpaquePointer) {
        self.pointer = pointer
        state = ContextState.of(pointer)
        reference = state.reference(takingOver: pointer)
    }

    /// The current time, by the clock of the context's timers.
    package var now: SuspendingClock.Instant {
        guard let clock = state.clock else { return .now }
        return Self.epoch + .microseconds(clock.microseconds)
    }

    /// The instant that corresponds to 0 of a ``LoopClock``.
    private static let epoch = SuspendingClock.now

    /// Whether the calling thread owns this context, that is, runs it at this moment.
    public var isOwner: Bool {
        g_main_context_is_owner(pointer) != 0
    }

    /// Wakes the thread that polls for this context, so that the loop checks its sources again.
    public func wakeUp() {
        g_main_context_wakeup(pointer)
    }

    /// Runs one iteration.
    ///
    /// - Parameter mayBlock: whether to wait for an event when none is ready.
    /// - Returns: whether anything was dispatched.
    @discardableResult
    public func iterate(mayBlock: Bool) -> Bool {
        g_main_context_iteration(pointer, mayBlock ? 1 : 0) != 0
    }
}

extension MainContext: Hashable {
    /// Whether both represent the same `GMainContext`.
    public static func == (left: MainContext, right: MainContext) -> Bool {
        left.pointer == right.pointer
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(pointer)
    }
}
