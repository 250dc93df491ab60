// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// Where the asynchronous function of an observer runs: once for each of what arrives, one after the other, in their
/// order (T1), and bounded as every queue (T2).
///
/// A task runs them, which is there only while there is something to run. What runs when the observer ends goes on to
/// its own end.
///
/// Threads: any.
package final class AsyncDelivery: Sendable {
    private struct Job: Sendable {
        let run: @Sendable () async -> Void
    }

    /// Awake while there is a task.
    private let state: Locked<Backlog<Job>>

    package init(_ limits: DeliveryQueue.Limits = .standard) {
        state = Locked(Backlog(limits))
    }

    /// Has `work` run after everything before. Returns at once.
    ///
    /// - Parameter byteCount: about how much memory it keeps.
    /// - Returns: how many of the oldest were lost because they were not taken in time; 0 after ``end()``.
    package func append(byteCount: Int, _ work: @escaping @Sendable () async -> Void) -> Int {
        let outcome = state.withLock { state in
            state.isClosed ? .init() : state.append(Job(run: work), byteCount: byteCount)
        }
        // Detached: it runs what several post, and has nothing of the first of them.
        if outcome.shallWake { Task.detached { await self.run() } }
        return outcome.lost
    }

    private func run() async {
        while let job = next() { await job.run() }
    }

    private func next() -> Job? {
        state.withLock { state in
            let job = state.next()
            state.isAwake = job != nil
            return job
        }
    }

    /// The observer has ended: what waits is let go of, and nothing is taken any more.
    package func end() {
        let dropped = state.withLock { $0.close() }
        withExtendedLifetime(dropped) {}
    }

    /// How many wait: for tests.
    package var count: Int {
        state.withLock { $0.count }
    }
}
