// SPDX-License-Identifier: Apache-2.0
import Foundation
import MainLoop
import Synchronization
import TestLimits
import TestSupport
import Testing

extension MainContext {
    /// Runs this context until `condition` holds.
    ///
    /// - Throws: ``NotInTime``.
    func run(_ what: String, until condition: () -> Bool) throws {
        var isLate = false
        let timer = EventSource.timer(milliseconds: 90_000, on: self) {
            isLate = true
            return .remove
        }
        while !condition() {
            guard !isLate else { throw NotInTime(what) }
            iterate(mayBlock: true)
        }
        withExtendedLifetime(timer) {}
    }

    /// Dispatches what is ready, without waiting.
    func settle() {
        exhaust("the loop") { iterate(mayBlock: false) }
    }
}

/// Wakes a context that has waited for too long, without being one of its sources: for tests in which nothing else may
/// end its wait.
final class Alarm: Sendable {
    private let isOver = Atomic(false)
    private let rings = Atomic(false)

    init(_ context: MainContext) {
        let deadline = Deadline(after: .patience)
        Thread { [self] in
            while !isOver.load(ordering: .relaxed) {
                if deadline.hasPassed {
                    rings.store(true, ordering: .relaxed)
                    context.wakeUp()
                }
                Thread.sleep(forTimeInterval: 0.05)
            }
        }.start()
    }

    func stop() { isOver.store(true, ordering: .relaxed) }

    /// - Throws: ``NotInTime`` when it rings.
    func check(_ what: String) throws {
        if rings.load(ordering: .relaxed) { throw NotInTime(what) }
    }
}
