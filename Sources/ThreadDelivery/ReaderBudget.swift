// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The time budget of a main-actor task that reads a sequence of notifications (T3): after 2 ms it yields to other work
/// of the main thread. Without this, a task with many waiting elements would never suspend, and would block the main
/// thread.
package struct ReaderBudget {
    private var meter: ShareMeter?

    package init() {}

    /// Yields to other work of the main thread if the budget is used up, and begins a new budget. The iterator calls
    /// this before it takes the next element.
    ///
    /// - Parameter actor: the actor of the reading task; other actors than the main actor have no budget.
    package mutating func begin(isolation actor: isolated (any Actor)?) async {
        guard actor === MainActor.shared else { return }
        if meter?.hasTime() == true { return }
        if meter != nil { await Task.yield() }
        meter = ShareMeter()
    }
}
