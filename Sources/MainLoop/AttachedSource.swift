// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A source of our own on a context: attached when this object is made, and taken off when it goes away.
///
/// A handler that runs at that moment is finished. The context is not kept alive.
///
/// Threads: any.
final class AttachedSource: @unchecked Sendable {
    // Sendable: GLib locks the source's context for each change; the pointer never changes after `init`.
    let pointer: UnsafeMutablePointer<GSource>
    private let context: ContextState

    /// - Parameter canRecurse: whether a nested loop inside the handler's `dispatch` may call that again.
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
