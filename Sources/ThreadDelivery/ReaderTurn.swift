// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The turns of a main-actor task that reads a sequence (T3). With many waiting elements, the next element is always
/// there at once, so the task would never let other work of the main thread run.
package struct ReaderTurn {
    private var meter: ShareMeter?

    package init() {}

    /// Yields to the other work of the main thread when the share of a turn is used up. Call this before taking the
    /// next element.
    package mutating func begin(isolation actor: isolated (any Actor)?) async {
        guard actor === MainActor.shared else { return }
        if meter?.hasTime() == true { return }
        if meter != nil { await Task.yield() }
        meter = ShareMeter()
    }
}
