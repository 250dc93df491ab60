// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A clock that timers of a ``MainContext`` go by in the place of the system's: one that a simulation moves on (E7).
///
/// Threads: that of the context.
package protocol LoopClock: AnyObject, Sendable {
    /// Since some moment; never goes back.
    var microseconds: Int64 { get }
    /// A timer is due at that time: the context is to be iterated then.
    func expect(at microseconds: Int64)
}

/// A timer that goes by a clock of that kind. GLib dispatches it as it does its own: by priority, and once in an iteration.
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
