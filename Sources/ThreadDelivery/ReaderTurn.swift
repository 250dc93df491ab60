// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The turns of a task on the main actor that reads a sequence (T3): where very much waits, its next element is there at once,
/// and it would never let anybody else of the main thread come.
package struct ReaderTurn {
    private var meter: ShareMeter?

    package init() {}

    /// Before the next element is taken: lets the others of the main thread come first, when the share of a turn is used up.
    package mutating func begin(isolation actor: isolated (any Actor)?) async {
        guard actor === MainActor.shared else { return }
        if meter?.hasTime() == true { return }
        if meter != nil { await Task.yield() }
        meter = ShareMeter()
    }
}
