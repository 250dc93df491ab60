// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// Time that goes on when a test says so. Sendable: its context is run by the test's thread only.
final class StageClock: LoopClock, @unchecked Sendable {
    var microseconds: Int64 = 1_000_000_000
    private var expected: Set<Int64> = []

    func expect(at microseconds: Int64) { expected.insert(microseconds) }

    /// When something is due next.
    var next: Int64? {
        expected = expected.filter { $0 > microseconds }
        return expected.min()
    }

    /// Has a context that goes by this clock go on until something may have happened in it.
    ///
    /// - Parameter turn: has it go on now. Returns whether something happened.
    /// - Returns: false when nothing happens before `end`.
    func goOn(until end: Int64, _ turn: () -> Bool) -> Bool {
        // GLib finds a source ready in one iteration that another one has made so.
        for _ in 0..<3 where turn() { return true }
        guard let next, next <= end else { return false }
        microseconds = max(microseconds, next)
        return true
    }
}
