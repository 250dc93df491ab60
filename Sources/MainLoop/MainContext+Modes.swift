// SPDX-License-Identifier: Apache-2.0
/// The run-loop modes of a context (M3). After a change, the loop checks again which sources are ready. Threads: any.
///
/// Modes affect only the sources that were given modes. The sources of GLib, GTK and other libraries are dispatched in
/// all modes.
extension MainContext {
    /// The mode that was entered last and not left, or ``RunLoopMode/default``.
    public var currentMode: RunLoopMode {
        state.mode
    }

    /// Enters a mode for a period of the program's own loop, for example while a dialogue is shown. Each push needs a
    /// pop.
    ///
    /// - Parameter mode: any mode except ``RunLoopMode/common``, which no loop can be in.
    public func pushMode(_ mode: RunLoopMode) {
        precondition(mode != .common, "a loop runs in one of the common modes, not in all")
        state.push(mode)
    }

    /// Leaves a mode. Periods need not be nested: the latest push of this mode ends, regardless of later pushes of
    /// other modes.
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

    /// Adds a mode to the common modes, which ``RunLoopMode/common`` stands for, for the lifetime of the context.
    public func addCommonMode(_ mode: RunLoopMode) {
        precondition(mode != .common, "the set of common modes does not contain itself")
        state.addCommonMode(mode)
    }
}

/// Read access to the modes of a context, for queues and sources that may outlive the context. This value does not keep
/// the context alive.
@usableFromInline package struct ContextModes: Sendable {
    private let state: ContextState

    package init(of context: MainContext) {
        state = context.state
    }

    init(_ state: ContextState) {
        self.state = state
    }

    /// A counter that rises whenever the result of ``allow(_:)`` may change.
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

    /// The same for a ``ModeSet``.
    @usableFromInline package func allow(_ set: ModeSet) -> Bool {
        state.allows(set.modes)
    }
}
