// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The serial queue for an observer with an `async` function: the function runs once for each notification, in their
/// order, and each call ends before the next begins (T1). The queue is bounded; when it is full, the oldest entries are
/// discarded (T2).
///
/// A detached task runs the function; the task exists only while work waits. If the observer ends during a call, the
/// call runs to its end.
///
/// Threads: any.
package final class AsyncDelivery: Sendable {
    private struct Job: Sendable {
        let run: @Sendable () async -> Void
    }

    /// The waiting work. Its `isAwake` is true while the task exists.
    private let state: Locked<Backlog<Job>>

    package init(_ limits: DeliveryQueue.Limits = .standard) {
        state = Locked(Backlog(limits))
    }

    /// Appends `work`, which runs after all earlier work. Returns at once.
    ///
    /// - Parameter byteCount: the approximate memory that `work` keeps, in bytes.
    /// - Returns: the number of entries that were discarded because the queue is full; 0 after ``end()``.
    package func append(byteCount: Int, _ work: @escaping @Sendable () async -> Void) -> Int {
        let outcome = state.withLock { state in
            state.isClosed ? .init() : state.append(Job(run: work), byteCount: byteCount)
        }
        // Detached: the task runs the work of several posters and must not inherit the context of the first.
        if outcome.mustWakeTarget { Task.detached { await self.run() } }
        return outcome.lost
    }

    /// The body of the task: runs entries until none waits.
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
