// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The queue for an observer's asynchronous function: it runs once for each notification, one after the other, in their
/// order (T1). It is bounded as every queue (T2).
///
/// A task runs the function; the task exists only while work waits. A call that runs when the observer ends continues
/// to its own end.
///
/// Threads: any.
package final class AsyncDelivery: Sendable {
    private struct Job: Sendable {
        let run: @Sendable () async -> Void
    }

    /// The waiting work; it is awake while there is a task.
    private let state: Locked<Backlog<Job>>

    package init(_ limits: DeliveryQueue.Limits = .standard) {
        state = Locked(Backlog(limits))
    }

    /// Appends `work`, which runs after all earlier work. Returns at once.
    ///
    /// - Parameter byteCount: the approximate memory that it keeps.
    /// - Returns: the number of entries, the oldest first, that were lost because they did not run in time; 0 after
    ///   ``end()``.
    package func append(byteCount: Int, _ work: @escaping @Sendable () async -> Void) -> Int {
        let outcome = state.withLock { state in
            state.isClosed ? .init() : state.append(Job(run: work), byteCount: byteCount)
        }
        // Detached: the task runs the work of several posters and must not inherit the context of the first.
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

    /// Ends the observer: waiting work is discarded, and no more is accepted.
    package func end() {
        let dropped = state.withLock { $0.close() }
        withExtendedLifetime(dropped) {}
    }

    /// The number of waiting entries; for tests.
    package var count: Int {
        state.withLock { $0.count }
    }
}
