// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// The owner of the work of a ``PolledSource``. The source holds it weakly.
package protocol PolledSourceDelegate: AnyObject {
    /// Whether there is work to do without waiting for a descriptor. Called before the loop waits.
    func hasPendingWork() -> Bool

    /// Does the work that is ready. Called on the thread that runs the context, and not again before it has returned.
    func dispatch()
}

/// A source for file descriptors whose owner, the *delegate*, may also have pending work of its own, such as a protocol
/// library with internal buffers. The service's channels, the MQTT client and the desktop protocols use it.
///
/// A nested loop inside of ``PolledSourceDelegate/dispatch()`` does not call `dispatch` again. GLib has a flag for this
/// (`can_recurse` off), but then GLib removes the descriptors from the poll and adds them again at each dispatch, which
/// costs three system calls. Therefore GLib may dispatch this source recursively, and the source removes its
/// descriptors from the poll only if a nested loop occurs.
///
/// Threads: all members only on the thread that runs the context.
package final class PolledSource {
    /// The conditions of a descriptor, as in `poll`: a set to wait for, or the set that occurred.
    package struct Conditions: OptionSet, Sendable {
        package let rawValue: UInt32

        package init(rawValue: UInt32) {
            self.rawValue = rawValue
        }

        package static let readable = Conditions(rawValue: G_IO_IN.rawValue)
        package static let writable = Conditions(rawValue: G_IO_OUT.rawValue)
        package static let error = Conditions(rawValue: G_IO_ERR.rawValue)
        package static let hangUp = Conditions(rawValue: G_IO_HUP.rawValue)
    }

    /// The handle of a descriptor that was added to the source.
    package struct Tag {
        fileprivate let number: Int
    }

    private struct Watch {
        let number: Int
        let descriptor: Int32
        let conditions: Conditions
        /// GLib's tag; nil while the descriptor is removed from the poll.
        var pointer: gpointer?
    }

    private weak var delegate: PolledSourceDelegate?
    private var source: AttachedSource!
    private var watches: [Watch] = []
    private var lastNumber = 0
    /// Whether the delegate's `dispatch` is running.
    private var isRunning = false
    /// Whether the descriptors are removed from the poll, because of a nested loop.
    private var isBlocked = false

    package init(delegate: PolledSourceDelegate, priority: EventSource.Priority, context: MainContext) {
        self.delegate = delegate
        source = AttachedSource(DelegateCaller(self), on: context, priority: priority, canRecurse: true)
    }

    /// Adds a descriptor. The delegate's `dispatch` is called when one of the conditions holds.
    package func add(descriptor: Int32, waitingFor conditions: Conditions) -> Tag {
        lastNumber += 1
        var watch = Watch(number: lastNumber, descriptor: descriptor, conditions: conditions, pointer: nil)
        if !isBlocked { put(&watch) }
        watches.append(watch)
        return Tag(number: lastNumber)
    }

    package func remove(_ tag: Tag) {
        guard let index = watches.firstIndex(where: { $0.number == tag.number }) else { return }
        take(&watches[index])
        watches.remove(at: index)
    }

    /// Returns the conditions of the descriptor that the last poll found.
    package func occurred(on tag: Tag) -> Conditions {
        guard let pointer = watches.first(where: { $0.number == tag.number })?.pointer else { return [] }
        return Conditions(rawValue: g_source_query_unix_fd(source.pointer, pointer).rawValue)
    }

    fileprivate func hasPendingWork() -> Bool {
        !isRunning && delegate?.hasPendingWork() == true
    }

    fileprivate func dispatch() {
        guard !isRunning else {
            // A nested loop found a descriptor ready. Without its removal the nested loop would never sleep.
            isBlocked = true
            for index in watches.indices { take(&watches[index]) }
            return
        }
        isRunning = true
        delegate?.dispatch()
        isRunning = false
        guard isBlocked else { return }
        isBlocked = false
        for index in watches.indices { put(&watches[index]) }
    }

    /// Adds a descriptor to the poll.
    private func put(_ watch: inout Watch) {
        let conditions = GIOCondition(rawValue: watch.conditions.rawValue)
        watch.pointer = g_source_add_unix_fd(source.pointer, watch.descriptor, conditions)
    }

    /// Removes a descriptor from the poll.
    private func take(_ watch: inout Watch) {
        guard let pointer = watch.pointer else { return }
        g_source_remove_unix_fd(source.pointer, pointer)
        watch.pointer = nil
    }
}

/// The connection from GLib's source to the ``PolledSource``.
private final class DelegateCaller: SourceHandler {
    /// Unowned: the owner destroys the GLib source, and this object with it, at its own end.
    private unowned let owner: PolledSource

    init(_ owner: PolledSource) {
        self.owner = owner
    }

    func prepare(_ source: Source) -> SourceReadiness {
        owner.hasPendingWork() ? .ready : .waiting
    }

    // There is no `check` after the poll: `prepare` reports pending work, and GLib itself detects a ready descriptor.

    func dispatch(_ source: Source) -> Bool {
        owner.dispatch()
        return true
    }
}
