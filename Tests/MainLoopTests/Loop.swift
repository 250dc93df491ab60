// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Synchronization
import Testing

extension MainContext {
    /// Waits until something is ready, and dispatches that: one iteration.
    ///
    /// - Throws: ``NotInTime``.
    func wait(for what: String) throws {
        let alarm = Alarm(self)
        defer { alarm.stop() }
        iterate(mayBlock: true)
        try alarm.check(what)
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
        Thread { [self] in
            var wait = Wait(.event)
            while !isOver.load(ordering: .relaxed) {
                if wait.end() != nil {
                    rings.store(true, ordering: .relaxed)
                    context.wakeUp()
                }
                letPass(.milliseconds(50), because: "it looks at the clock")
            }
        }.start()
    }

    func stop() { isOver.store(true, ordering: .relaxed) }

    /// - Throws: ``NotInTime`` when it rings.
    func check(_ what: String) throws {
        if rings.load(ordering: .relaxed) { throw NotInTime(what) }
    }
}
