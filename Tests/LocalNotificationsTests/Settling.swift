// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Testing

extension MainContext {
    /// Dispatches until nothing is ready, however often the loop turns for that: how much it does in one turn depends on
    /// how long that takes.
    func settle(sourceLocation: SourceLocation = #_sourceLocation) {
        // After others means one iteration in which nothing of ours is ready.
        for _ in 0..<2 { exhaust("the loop", sourceLocation: sourceLocation) { iterate(mayBlock: false) } }
    }
}
