// SPDX-License-Identifier: Apache-2.0
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
}

/// The modes of a context, for those that may outlive it: this does not keep it alive.
@usableFromInline package struct ContextModes: Sendable {
    private let state: ContextState

    package init(of context: MainContext) {
        state = context.state
    }

    init(_ state: ContextState) {
        self.state = state
    }

    /// Goes up whenever ``allow(_:)`` may answer otherwise than before.
    @usableFromInline package var generation: Int {
        state.generation
    }

    /// Whether the context is gone.
    package var isEnded: Bool {
        state.isEnded
    }

    /// Whether a source of these modes may be dispatched now.
    package func allow(_ modes: Set<RunLoopMode>) -> Bool {
        state.allows(modes)
    }

    @usableFromInline package func allow(_ set: ModeSet) -> Bool {
        state.allows(set.modes)
    }
}
