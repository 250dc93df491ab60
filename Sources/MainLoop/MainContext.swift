// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A `GMainContext`: the set of event sources that one thread at a time dispatches.
///
/// Threads: every member may be used from any thread, as GLib documents for `GMainContext`.
public final class MainContext: @unchecked Sendable {
    // Sendable: GMainContext locks itself; the pointer never changes after `init`.
    let pointer: OpaquePointer
    /// What is the same for all objects of this class that stand for the same `GMainContext`.
    let state: ContextState
    private let reference: ContextReference

    /// The context of the main thread (`g_main_context_default`).
    public static let `default` = MainContext(owning: g_main_context_ref(g_main_context_default()))

    /// A new context that no thread owns yet.
    public convenience init() {
        self.init(owning: g_main_context_new())
    }

    /// A new context whose timers and turns go by `clock`. Whoever runs it iterates it when the clock has come to one that
    /// is due.
    package init(clock: any LoopClock) {
        pointer = g_main_context_new()
        state = .anchored(to: pointer, clock: clock)
        reference = state.reference(takingOver: pointer)
    }

    /// A new context whose turns are measured by another clock, in nanoseconds: for tests.
    package convenience init(turnClock: @escaping @Sendable () -> Int64) {
        let pointer = g_main_context_new()!
        // Its state is made with its first wrapper.
        _ = ContextState.of(pointer, turnClock: turnClock)
        self.init(owning: pointer)
    }

    /// Takes a reference over.
    init(owning pointer: OpaquePointer) {
        self.pointer = pointer
        state = ContextState.of(pointer)
        reference = state.reference(takingOver: pointer)
    }

    /// The present, by the clock that the context's timers go by.
    package var now: SuspendingClock.Instant {
        guard let clock = state.clock else { return .now }
        return Self.epoch + .microseconds(clock.microseconds)
    }

    /// Where other clocks begin.
    private static let epoch = SuspendingClock.now

    /// Whether the calling thread owns this context, that is, is running it at this moment.
    public var isOwner: Bool {
        g_main_context_is_owner(pointer) != 0
    }

    /// Ends a poll that is under way in another thread, so that sources are asked again.
    public func wakeUp() {
        g_main_context_wakeup(pointer)
    }

    /// Runs one iteration. Returns whether anything was dispatched.
    ///
    /// - Parameter mayBlock: wait for an event when none is ready.
    @discardableResult
    public func iterate(mayBlock: Bool) -> Bool {
        g_main_context_iteration(pointer, mayBlock ? 1 : 0) != 0
    }
}

extension MainContext: Hashable {
    /// Whether both stand for the same `GMainContext`.
    public static func == (left: MainContext, right: MainContext) -> Bool {
        left.pointer == right.pointer
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(pointer)
    }
}
