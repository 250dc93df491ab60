// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// The ownership of one `GSource` on a context: the source is attached when this object is created, and removed when
/// this object is released. All sources of this module with a ``SourceHandler`` use it.
///
/// A handler call in progress at the release runs to its end. This object does not keep the context alive.
///
/// Threads: any.
final class AttachedSource: @unchecked Sendable {
    // Sendable: GLib locks the source's context for each change; the pointer never changes after `init`.
    let pointer: UnsafeMutablePointer<GSource>
    private let context: ContextState

    /// - Parameter canRecurse: whether a nested loop inside the handler's `dispatch` may call `dispatch` again.
    init(
        _ handler: any SourceHandler, on context: MainContext, priority: EventSource.Priority, canRecurse: Bool = false
    ) {
        pointer = .make(handler, priority: priority.rawValue)
        self.context = context.state
        g_source_set_can_recurse(pointer, canRecurse ? 1 : 0)
        pointer.attach(to: context.pointer)
    }

    deinit {
        context.end(pointer)
    }
}
