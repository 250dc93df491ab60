import CGLib

/// The modes of a context (M3). Threads: any, unless said otherwise; the loop looks at its sources anew after a change.
///
/// Only sources that were given modes depend on them: those of GLib, GTK and everyone else are dispatched in all.
extension MainContext {
    /// The mode that was entered last and not left, or ``RunLoopMode/default``.
    public var currentMode: RunLoopMode {
        state.mode
    }

    /// Enters a mode for a stretch of the program's own loop, say while a dialogue is shown. Each push needs a pop.
    ///
    /// - Parameter mode: not ``RunLoopMode/common``, which is no mode that one can be in.
    public func pushMode(_ mode: RunLoopMode) {
        precondition(mode != .common, "a loop runs in one of the common modes, not in all")
        state.push(mode)
    }

    /// Leaves a mode. Stretches need not be nested: what was entered last of this mode ends, whatever came after.
    ///
    /// - Returns: whether the mode had been entered.
    @discardableResult
    public func popMode(_ mode: RunLoopMode) -> Bool {
        state.pop(mode)
    }

    /// The modes that ``RunLoopMode/common`` stands for.
    public var commonModes: Set<RunLoopMode> {
        state.commonModes
    }

    /// Adds a mode to those that ``RunLoopMode/common`` stands for, for as long as the context lives.
    public func addCommonMode(_ mode: RunLoopMode) {
        precondition(mode != .common, "the set of common modes does not contain itself")
        state.addCommonMode(mode)
    }

    /// Runs the context in a mode until a condition holds: a nested loop when called from a callback of the same
    /// context. The mode is left at the end.
    ///
    /// Call it on the thread that runs the context; when none does, this one does meanwhile.
    ///
    /// - Parameter isDone: asked before each iteration. If another thread makes it true, that has to ``wakeUp()`` the
    ///   context.
    public func run(mode: RunLoopMode, until isDone: () -> Bool) {
        acquire()
        defer { g_main_context_release(pointer) }
        pushMode(mode)
        defer { popMode(mode) }
        while !isDone() { iterate(mayBlock: true) }
    }

    /// Runs the context in a mode for a time.
    ///
    /// - Parameter limit: when to return, after what is being dispatched then.
    public func run(mode: RunLoopMode, until limit: ContinuousClock.Instant) {
        acquire()
        defer { g_main_context_release(pointer) }
        let left = ContinuousClock.now.duration(to: limit)
        let milliseconds = left.components.seconds * 1_000 + left.components.attoseconds / 1_000_000_000_000_000
        // Ends the poll; it says nothing itself, so that being late behind other sources changes nothing.
        let timer = EventSource.timer(
            milliseconds: UInt32(clamping: milliseconds + 1), on: self, priority: .high, action: { .keep })
        run(mode: mode, until: { ContinuousClock.now >= limit })
        withExtendedLifetime(timer) {}
    }

    private func acquire() {
        precondition(g_main_context_acquire(pointer) != 0, "another thread runs this context")
    }
}

/// The modes of a context, for those that may outlive it: this does not keep it alive.
package struct ContextModes: Sendable {
    private let state: ContextState

    package init(of context: MainContext) {
        state = context.state
    }

    /// Whether a source of these modes may be dispatched now.
    package func allow(_ modes: Set<RunLoopMode>) -> Bool {
        state.allows(modes)
    }
}
