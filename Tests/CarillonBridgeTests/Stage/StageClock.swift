// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// Time that goes on when a test says so. Sendable: its context is run by the test's thread only.
final class StageClock: LoopClock, @unchecked Sendable {
    private(set) var microseconds: Int64 = 1_000_000_000
    private var expected: Set<Int64> = []

    func expect(at microseconds: Int64) { expected.insert(microseconds) }

    /// Whether a timer runs, or may: that of one which was given up counts until its time.
    var isAwaited: Bool { expected.contains { $0 > microseconds } }

    /// Goes on from timer to timer.
    ///
    /// - Parameter turn: does what there is to do, besides the context's.
    func pass(seconds: Int64, on context: MainContext, _ turn: () -> Void = {}) {
        let end = microseconds + seconds * 1_000_000
        while true {
            goOn(context, turn)
            expected = expected.filter { $0 > microseconds }
            guard let next = expected.min(), next <= end else { break }
            microseconds = next
        }
        microseconds = end
        goOn(context, turn)
    }

    private func goOn(_ context: MainContext, _ turn: () -> Void) {
        // GLib finds a source ready in one iteration that another one has made so.
        var idle = 0
        while idle < 3 {
            turn()
            idle = context.iterate(mayBlock: false) ? 0 : idle + 1
        }
    }
}
