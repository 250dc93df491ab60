// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A source with a closure on a ``MainContext``: a timer, an idle callback or a Unix signal.
///
/// The source stays attached as long as this object lives and its closure returns ``Continuation/keep``. The release of
/// the object cancels the source, also inside the closure.
///
/// Threads: create and release it on the thread that runs the context.
public final class EventSource {
    /// The fate of a source after its closure has run.
    public enum Continuation {
        case keep
        case remove
    }

    /// Priorities as GLib counts them: a smaller number is dispatched first.
    public struct Priority: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32

        public init(rawValue: Int32) {
            self.rawValue = rawValue
        }

        /// `G_PRIORITY_HIGH`, −100.
        public static let high = Priority(rawValue: G_PRIORITY_HIGH)
        /// `G_PRIORITY_DEFAULT`, 0.
        public static let `default` = Priority(rawValue: G_PRIORITY_DEFAULT)
        /// `G_PRIORITY_DEFAULT_IDLE`, 200.
        public static let idle = Priority(rawValue: G_PRIORITY_DEFAULT_IDLE)
    }

    private let pointer: UnsafeMutablePointer<GSource>

    private init(
        attaching pointer: UnsafeMutablePointer<GSource>,
        to context: MainContext,
        priority: Priority,
        action: @escaping () -> Continuation
    ) {
        self.pointer = pointer
        let action = Unmanaged.passRetained(Action(run: action)).toOpaque()
        g_source_set_callback(pointer, runAction, action, releaseAction)
        g_source_set_priority(pointer, priority.rawValue)
        pointer.attach(to: context.pointer)
    }

    /// Creates a timer that a ``LoopClock`` measures, in place of GLib's clock.
    private init(attaching timer: ClockTimer, to context: MainContext, priority: Priority) {
        pointer = .make(timer, priority: priority.rawValue)
        pointer.attach(to: context.pointer)
    }

    deinit {
        // This is safe inside the closure: GLib holds the source and the closure until the closure returns.
        g_source_destroy(pointer)
        g_source_unref(pointer)
    }

    /// Whether the source is attached, so that it can call its closure again. It is false after the closure returned
    /// ``Continuation/remove``.
    public var isPending: Bool {
        g_source_is_destroyed(pointer) == 0
    }

    /// Returns a timer that fires after `milliseconds`, and again after the same time as long as its closure keeps it.
    public static func timer(
        milliseconds: UInt32,
        on context: MainContext,
        priority: Priority = .default,
        action: @escaping () -> Continuation
    ) -> EventSource {
        // Only the context of a simulation has a clock of its own, which GLib's timers would ignore.
        if let clock = context.state.clock {
            return EventSource(
                attaching: ClockTimer(clock, milliseconds: milliseconds, action: action), to: context,
                priority: priority)
        }
        return EventSource(
            attaching: g_timeout_source_new(milliseconds), to: context, priority: priority, action: action)
    }

    /// Returns a timer that fires once, after `milliseconds`. The timer has ended before its closure runs, so the
    /// closure may release it or replace it with the next one.
    public static func once(
        milliseconds: UInt32,
        on context: MainContext,
        priority: Priority = .default,
        action: @escaping () -> Void
    ) -> EventSource {
        timer(milliseconds: milliseconds, on: context, priority: priority) {
            g_source_destroy(g_main_current_source())
            action()
            return .remove
        }
    }

    /// Returns a source that runs its closure when nothing of a higher priority is ready.
    public static func idle(
        on context: MainContext,
        priority: Priority = .idle,
        action: @escaping () -> Continuation
    ) -> EventSource {
        EventSource(attaching: g_idle_source_new(), to: context, priority: priority, action: action)
    }

    /// Returns a source that runs its closure on the loop's thread after the process received `signal`. GLib can watch
    /// `SIGHUP`, `SIGINT`, `SIGTERM`, `SIGUSR1`, `SIGUSR2` and `SIGWINCH`.
    public static func unixSignal(
        _ signal: Int32,
        on context: MainContext,
        action: @escaping () -> Continuation
    ) -> EventSource {
        EventSource(attaching: g_unix_signal_source_new(signal), to: context, priority: .high, action: action)
    }
}

/// The closure of a source, as an object that C code can hold.
private final class Action {
    let run: () -> EventSource.Continuation

    init(run: @escaping () -> EventSource.Continuation) {
        self.run = run
    }
}

private func runAction(_ data: gpointer?) -> gboolean {
    // GLib's lock ordered this call behind the source's creation; the thread sanitizer does not see that lock.
    carillon_tsan_acquire(g_main_current_source())
    return switch Unmanaged<Action>.fromOpaque(data!).takeUnretainedValue().run() {
    case .keep: 1
    case .remove: 0
    }
}

private func releaseAction(_ data: gpointer?) {
    Unmanaged<Action>.fromOpaque(data!).release()
}
