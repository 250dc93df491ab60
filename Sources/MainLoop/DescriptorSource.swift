import CGLib

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A source on a ``MainContext`` that runs its action while a descriptor is readable, in some modes only (M3).
///
/// While it may not run, the descriptor is not polled, so that one that stays readable costs nothing. When the action
/// leaves it readable, everything else that is ready gets its turn before it runs again. The action is not run again by
/// a nested loop inside itself.
///
/// Threads: make and release it on any thread.
package final class DescriptorSource: Sendable {
    private let source: AttachedSource

    /// - Parameters:
    ///   - descriptor: stays the caller's. If it is closed or becomes invalid, the source ends by itself.
    ///   - onMainThreadOnly: while another thread runs the context, the source lets the descriptor alone.
    ///   - action: called on the thread that runs `context`.
    package init(
        on context: MainContext, descriptor: Int32, priority: EventSource.Priority = .default,
        modes: Set<RunLoopMode>? = [.common], onMainThreadOnly: Bool = false, action: @escaping @Sendable () -> Void
    ) {
        let core = DescriptorCore(
            context: context.state, descriptor: descriptor, modes: modes, onMainThreadOnly: onMainThreadOnly,
            action: action)
        source = AttachedSource(core, on: context, priority: priority)
    }
}

private final class DescriptorCore: SourceHandler, @unchecked Sendable {
    // Sendable: the variables are used only by the thread that runs the context, which GLib's lock of it orders.
    private let context: ContextState
    private let descriptor: Int32
    private let modes: Set<RunLoopMode>?
    private let onMainThreadOnly: Bool
    private let action: @Sendable () -> Void
    /// The registration of the descriptor, while it is polled.
    private var tag: gpointer?
    /// Whether the action left the descriptor readable: for one iteration it is not looked at.
    private var isResting = false
    private var isInvalid = false

    init(
        context: ContextState, descriptor: Int32, modes: Set<RunLoopMode>?, onMainThreadOnly: Bool,
        action: @escaping @Sendable () -> Void
    ) {
        self.context = context
        self.descriptor = descriptor
        self.modes = modes
        self.onMainThreadOnly = onMainThreadOnly
        self.action = action
    }

    private var mayRun: Bool {
        !isInvalid && (modes.map(context.allows) ?? true) && (!onMainThreadOnly || MainContext.isMainThread)
    }

    func prepare(_ source: Source) -> SourceReadiness {
        let mayWait = !isResting
        let shallPoll = mayRun && mayWait
        isResting = false
        if shallPoll, tag == nil {
            tag = g_source_add_unix_fd(source, descriptor, G_IO_IN)
        } else if !shallPoll, let tag {
            // Taken out altogether: poll reports hang-ups and errors of what it watches for nothing, too, and GLib
            // dispatches a source whose descriptor has anything to report.
            g_source_remove_unix_fd(source, tag)
            self.tag = nil
        }
        // GLib dispatches it when the descriptor is ready.
        return mayWait ? .waiting : .resting
    }

    func dispatch(_ source: Source) -> Bool {
        guard let tag, mayRun else { return true }
        let occurred = g_source_query_unix_fd(source, tag)
        guard occurred.rawValue & (G_IO_NVAL.rawValue | G_IO_ERR.rawValue | G_IO_HUP.rawValue) == 0 else {
            isInvalid = true
            return false
        }
        action()
        var now = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        isResting = poll(&now, 1, 0) > 0
        return true
    }
}
