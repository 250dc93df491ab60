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

    private let source: AttachedSource

    public init(delegate: PolledSourceDelegate, priority: EventSource.Priority, context: MainContext) {
        source = AttachedSource(DelegateCaller(delegate), on: context, priority: priority)
    }

    public func add(descriptor: Int32, waitingFor conditions: Conditions) -> Tag {
        Tag(pointer: g_source_add_unix_fd(source.pointer, descriptor, GIOCondition(rawValue: conditions.rawValue)))
    }

    public func remove(_ tag: Tag) {
        g_source_remove_unix_fd(source.pointer, tag.pointer)
    }

    /// The conditions of the descriptor that the last poll found.
    public func occurred(on tag: Tag) -> Conditions {
        Conditions(rawValue: g_source_query_unix_fd(source.pointer, tag.pointer).rawValue)
    }
}

private final class DelegateCaller: SourceHandler {
    private weak var delegate: PolledSourceDelegate?

    init(_ delegate: PolledSourceDelegate) {
        self.delegate = delegate
    }

    func prepare(_ source: Source) -> SourceReadiness {
        delegate?.hasPendingWork() == true ? .ready : .waiting
    }

    // No check: pending work was answered before the poll, and for a descriptor that is ready GLib dispatches by itself.

    func dispatch(_ source: Source) -> Bool {
        delegate?.dispatch()
        return true
    }
}
