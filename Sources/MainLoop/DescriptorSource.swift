import CGLib
import Synchronization

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
package final class DescriptorSource: @unchecked Sendable {
    // Sendable: GLib locks the source's context for each change; the pointer never changes after `init`.
    private let source: UnsafeMutablePointer<GSource>
    private let core: DescriptorCore

    /// - Parameters:
    ///   - descriptor: stays the caller's. If it is closed or becomes invalid, the source ends by itself.
    ///   - onMainThreadOnly: while another thread runs the context, the source lets the descriptor alone.
    ///   - action: called on the thread that runs `context`.
    package init(
        on context: MainContext, descriptor: Int32, priority: EventSource.Priority = .default,
        modes: Set<RunLoopMode>? = [.common], onMainThreadOnly: Bool = false, action: @escaping @Sendable () -> Void
    ) {
        core = DescriptorCore(
            context: context.state, descriptor: descriptor, modes: modes, onMainThreadOnly: onMainThreadOnly,
            action: action)
        source = g_source_new(sourceFunctions.pointer, guint(slotOffset + MemoryLayout<gpointer>.size))
        let slot = Unmanaged.passRetained(core).toOpaque()
        UnsafeMutableRawPointer(source).storeBytes(of: slot, toByteOffset: slotOffset, as: gpointer.self)
        g_source_set_priority(source, priority.rawValue)
        g_source_attach(source, context.pointer)
    }

    deinit {
        core.context.destroy(source)
        g_source_unref(source)
    }
}

private final class DescriptorCore: @unchecked Sendable {
    // Sendable: the variables are used only by the thread that runs the context, which GLib's lock of it orders.
    let context: ContextState
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

    /// - Returns: whether the loop may wait for events.
    func prepare(_ source: UnsafeMutablePointer<GSource>) -> Bool {
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
        return mayWait
    }

    /// - Returns: whether the source shall stay.
    func dispatch(_ source: UnsafeMutablePointer<GSource>) -> Bool {
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

/// The core is stored behind GLib's own struct, which `g_source_new` allocates with the room for it.
private let slotOffset = MemoryLayout<GSource>.stride

private func slot(of source: UnsafeMutablePointer<GSource>?) -> Unmanaged<DescriptorCore> {
    Unmanaged.fromOpaque(UnsafeRawPointer(source!).load(fromByteOffset: slotOffset, as: UnsafeMutableRawPointer.self))
}

/// GLib keeps the address of the function table for as long as a source of it lives; this one lives for ever.
private struct SourceFunctions: @unchecked Sendable {
    // Sendable: written once, before anyone can see it.
    let pointer: UnsafeMutablePointer<GSourceFuncs>

    init() {
        pointer = .allocate(capacity: 1)
        pointer.initialize(to: GSourceFuncs())
        pointer.pointee.prepare = { source, timeout in
            timeout?.pointee = slot(of: source).takeUnretainedValue().prepare(source!) ? -1 : 0
            return 0
        }
        // No check: GLib dispatches when the descriptor is ready.
        pointer.pointee.dispatch = { source, _, _ in
            slot(of: source).takeUnretainedValue().dispatch(source!) ? 1 : 0
        }
        pointer.pointee.finalize = { source in slot(of: source).release() }
    }
}

private let sourceFunctions = SourceFunctions()
