// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A `GMainLoop`: runs a context until ``quit()``.
///
/// Threads: `run` is called on the thread that is to own the context, `quit` on any thread.
public final class EventLoop: @unchecked Sendable {
    // Sendable: GMainLoop's quit and is_running are thread-safe; the pointer never changes after `init`.
    private let pointer: OpaquePointer
    /// Held longer than the loop: the last reference to a context is then never GLib's own.
    private let context: MainContext

    public init(context: MainContext = .default) {
        self.context = context
        pointer = g_main_loop_new(context.pointer, 0)
    }

    deinit {
        g_main_loop_unref(pointer)
    }

    /// Dispatches events until ``quit()``.
    public func run() {
        g_main_loop_run(pointer)
    }

    /// Makes ``run()`` return after the current dispatch.
    public func quit() {
        g_main_loop_quit(pointer)
    }
}

/// Running a context in a mode (M3).
extension MainContext {
    /// Runs the context in a mode until a condition holds, and then leaves the mode. A call from a callback of the same
    /// context runs a nested loop.
    ///
    /// No other thread may be running the context; the calling thread owns it during the call.
    ///
    /// - Parameter isDone: the condition, checked before each iteration. If another thread makes it true, that thread
    ///   must call ``wakeUp()``.
    public func run(mode: RunLoopMode, until isDone: () -> Bool) {
        acquire()
        defer { g_main_context_release(pointer) }
        pushMode(mode)
        defer { popMode(mode) }
        while !isDone() { iterate(mayBlock: true) }
    }

    /// Runs the context in a mode until a point in time.
    ///
    /// - Parameter limit: the end. A dispatch in progress at this time is finished first.
    public func run(mode: RunLoopMode, until limit: ContinuousClock.Instant) {
        acquire()
        defer { g_main_context_release(pointer) }
        let left = ContinuousClock.now.duration(to: limit)
        let milliseconds = left.components.seconds * 1_000 + left.components.attoseconds / 1_000_000_000_000_000
        // The timer only ends the poll. Its result does not matter, so a delay behind other sources changes nothing.
        let timer = EventSource.timer(
            milliseconds: UInt32(clamping: milliseconds + 1), on: self, priority: .high, action: { .keep })
        run(mode: mode, until: { ContinuousClock.now >= limit })
        withExtendedLifetime(timer) {}
    }

    private func acquire() {
        precondition(g_main_context_acquire(pointer) != 0, "another thread runs this context")
    }
}
