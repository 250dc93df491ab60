import CGLib

/// What a ``PolledSource`` asks and tells. The source holds it weakly.
public protocol PolledSourceDelegate: AnyObject {
    /// Whether there is work to do without waiting for a descriptor.
    func hasPendingWork() -> Bool

    /// Does what is ready. Called on the thread that runs the context.
    func dispatch()
}

/// A source over file descriptors whose owner may also have work of its own pending: the shape that a protocol
/// library with internal buffers needs.
///
/// Threads: all members only on the thread that runs the context.
public final class PolledSource {
    /// Conditions to wait for, and those that occurred.
    public struct Conditions: OptionSet, Sendable {
        public let rawValue: UInt32

        public init(rawValue: UInt32) {
            self.rawValue = rawValue
        }

        public static let readable = Conditions(rawValue: G_IO_IN.rawValue)
        public static let writable = Conditions(rawValue: G_IO_OUT.rawValue)
        public static let error = Conditions(rawValue: G_IO_ERR.rawValue)
        public static let hangUp = Conditions(rawValue: G_IO_HUP.rawValue)
    }

    /// A descriptor's registration with the source.
    public struct Tag {
        fileprivate let pointer: gpointer
    }

    private let source: UnsafeMutablePointer<GSource>

    public init(delegate: PolledSourceDelegate, priority: EventSource.Priority, context: MainContext) {
        let size = slotOffset + MemoryLayout<UnsafeMutableRawPointer>.size
        source = g_source_new(sourceFunctions.pointer, guint(size))
        let slot = Unmanaged.passRetained(DelegateSlot(delegate)).toOpaque()
        UnsafeMutableRawPointer(source).storeBytes(of: slot, toByteOffset: slotOffset, as: UnsafeMutableRawPointer.self)
        g_source_set_priority(source, priority.rawValue)
        g_source_attach(source, context.pointer)
    }

    deinit {
        g_source_destroy(source)
        g_source_unref(source)
    }

    public func add(descriptor: Int32, waitingFor conditions: Conditions) -> Tag {
        Tag(pointer: g_source_add_unix_fd(source, descriptor, GIOCondition(rawValue: conditions.rawValue)))
    }

    public func remove(_ tag: Tag) {
        g_source_remove_unix_fd(source, tag.pointer)
    }

    /// The conditions of the descriptor that the last poll found.
    public func occurred(on tag: Tag) -> Conditions {
        Conditions(rawValue: g_source_query_unix_fd(source, tag.pointer).rawValue)
    }
}

/// The delegate is stored behind GLib's own struct, which `g_source_new` allocates with the room for it.
private let slotOffset = MemoryLayout<GSource>.stride

private final class DelegateSlot {
    weak var delegate: PolledSourceDelegate?

    init(_ delegate: PolledSourceDelegate) {
        self.delegate = delegate
    }
}

private func delegate(of source: UnsafeMutablePointer<GSource>?) -> PolledSourceDelegate? {
    let slot = UnsafeRawPointer(source!).load(fromByteOffset: slotOffset, as: UnsafeMutableRawPointer.self)
    return Unmanaged<DelegateSlot>.fromOpaque(slot).takeUnretainedValue().delegate
}

/// GLib keeps the address of the function table for as long as a source of it lives; this one lives for ever.
private struct SourceFunctions: @unchecked Sendable {
    // Sendable: written once, before anyone can see it.
    let pointer: UnsafeMutablePointer<GSourceFuncs>

    init() {
        pointer = .allocate(capacity: 1)
        pointer.initialize(to: GSourceFuncs())
        pointer.pointee.prepare = { source, timeout in
            timeout?.pointee = -1
            return delegate(of: source)?.hasPendingWork() == true ? 1 : 0
        }
        // With no check function GLib dispatches when a descriptor of the source is ready, which is what we want:
        // pending work was already answered by prepare.
        pointer.pointee.check = nil
        pointer.pointee.dispatch = { source, _, _ in
            delegate(of: source)?.dispatch()
            return 1
        }
        pointer.pointee.finalize = { source in
            let slot = UnsafeRawPointer(source!).load(fromByteOffset: slotOffset, as: UnsafeMutableRawPointer.self)
            Unmanaged<DelegateSlot>.fromOpaque(slot).release()
        }
    }
}

private let sourceFunctions = SourceFunctions()
