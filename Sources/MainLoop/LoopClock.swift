// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A clock for the timers of a ``MainContext``, in place of the system's clock (E7). A simulation implements it with a
/// virtual time that it advances itself.
///
/// Threads: the thread that runs the context.
package protocol LoopClock: AnyObject, Sendable {
    /// The time since a fixed moment, in microseconds; never goes back.
    var microseconds: Int64 { get }
    /// Called when a timer is set or repeats, with the time at which it is due. GLib does not know this time, and does
    /// not wake up for it. The owner of the clock must therefore iterate the context when the clock reaches the time.
    func expect(at microseconds: Int64)
}

/// A timer that is measured by a ``LoopClock``. GLib dispatches it like its own timers: by priority, and once in an
/// iteration.
final class ClockTimer: SourceHandler {
    private let clock: any LoopClock
    /// The interval in microseconds.
    private let interval: Int64
    /// The time of the next dispatch, in microseconds of the clock.
    private var due: Int64
    private let action: () -> EventSource.Continuation

    init(_ clock: any LoopClock, milliseconds: UInt32, action: @escaping () -> EventSource.Continuation) {
        self.clock = clock
        interval = Int64(milliseconds) * 1000
        due = clock.microseconds + interval
        self.action = action
        clock.expect(at: due)
    }

    func prepare(_ source: Source) -> SourceReadiness { clock.microseconds >= due ? .ready : .waiting }

    func dispatch(_ source: Source) -> Bool {
        guard action() == .keep else { return false }
        due = clock.microseconds + interval
        clock.expect(at: due)
        return true
    }
}
