// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A clock for the timers of a ``MainContext`` in place of the system's clock, which a simulation advances (E7).
///
/// Threads: that of the context.
package protocol LoopClock: AnyObject, Sendable {
    /// The time since a fixed moment; never goes back.
    var microseconds: Int64 { get }
    /// Announces a timer that is due at this time: the context must be iterated then.
    func expect(at microseconds: Int64)
}

/// A timer with a clock of that kind. GLib dispatches it like its own timers: by priority, and once in an iteration.
final class ClockTimer: SourceHandler {
    private let clock: any LoopClock
    private let interval: Int64
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
