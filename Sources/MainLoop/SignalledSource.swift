import CGLib

/// A source on a ``MainContext`` that any thread can trigger: the way into a loop from outside.
///
/// Signals that come before the action ran count as one, and wake the loop once. The action runs at the source's
/// priority, and may run a nested loop of the same context, in which the source can be dispatched again.
///
/// Threads: all members from any thread. The source stays attached as long as this object lives; an action that runs at
/// that moment is finished.
public final class SignalledSource: @unchecked Sendable {
    // Sendable: GLib locks the source's context for each change; the pointer never changes after `init`.
    private let source: UnsafeMutablePointer<GSource>

    /// - Parameter action: called on the thread that runs `context`, after a ``signal()``.
    public init(on context: MainContext, priority: EventSource.Priority, action: @escaping @Sendable () -> Void) {
        let size = slotOffset + MemoryLayout<UnsafeMutableRawPointer>.size
        source = g_source_new(sourceFunctions.pointer, guint(size))
        let slot = Unmanaged.passRetained(ActionSlot(run: action)).toOpaque()
        UnsafeMutableRawPointer(source).storeBytes(of: slot, toByteOffset: slotOffset, as: UnsafeMutableRawPointer.self)
        g_source_set_priority(source, priority.rawValue)
        g_source_set_can_recurse(source, 1)
        g_source_attach(source, context.pointer)
    }

    deinit {
        g_source_destroy(source)
        g_source_unref(source)
    }

    /// Has the action run, as soon as the loop comes to it.
    public func signal() {
        g_source_set_ready_time(source, 0)
    }

    /// Takes a ``signal()`` back whose action did not run yet.
    public func cancel() {
        g_source_set_ready_time(source, -1)
    }
}

/// The action is stored behind GLib's own struct, which `g_source_new` allocates with the room for it.
private let slotOffset = MemoryLayout<GSource>.stride

private final class ActionSlot {
    let run: @Sendable () -> Void

    init(run: @escaping @Sendable () -> Void) {
        self.run = run
    }
}

private func slot(of source: UnsafeMutablePointer<GSource>?) -> Unmanaged<ActionSlot> {
    Unmanaged.fromOpaque(
        UnsafeRawPointer(source!).load(fromByteOffset: slotOffset, as: UnsafeMutableRawPointer.self))
}

/// GLib keeps the address of the function table for as long as a source of it lives; this one lives for ever.
private struct SourceFunctions: @unchecked Sendable {
    // Sendable: written once, before anyone can see it.
    let pointer: UnsafeMutablePointer<GSourceFuncs>

    init() {
        pointer = .allocate(capacity: 1)
        pointer.initialize(to: GSourceFuncs())
        // Neither prepare nor check: GLib dispatches the source when its ready time has come.
        pointer.pointee.dispatch = { source, _, _ in
            // Before the action: a signal that comes while it runs asks for another run.
            g_source_set_ready_time(source, -1)
            slot(of: source).takeUnretainedValue().run()
            return 1
        }
        pointer.pointee.finalize = { source in slot(of: source).release() }
    }
}

private let sourceFunctions = SourceFunctions()
