// SPDX-License-Identifier: Apache-2.0
import Synchronization

/// The threads on which tasks run that ask for no others.
public enum PoolOfTasks {
    /// All threads were held too long.
    public struct Held: Error, CustomStringConvertible {
        public let description = "not within ten minutes: a thread of the pool of tasks, all of which are held"
    }

    /// Goes once through the pool, on which much of what a task waits for goes on: while others hold its threads, nothing
    /// comes.
    ///
    /// - Throws: ``Held`` where they are held for ten minutes, if the caller has a thread of its own.
    public static func pass() async throws(Held) {
        let hasPassed = Passage()
        Task.detached { hasPassed.end() }
        let start = ContinuousClock.now
        while !hasPassed.isOver {
            guard ContinuousClock.now - start < .seconds(600) else { throw Held() }
            try? await Task.sleep(for: .milliseconds(1))
        }
    }

    private final class Passage: Sendable {
        private let state = Atomic(false)
        var isOver: Bool { state.load(ordering: .acquiring) }
        func end() { state.store(true, ordering: .releasing) }
    }
}
