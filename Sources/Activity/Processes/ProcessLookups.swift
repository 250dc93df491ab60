// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The result of a query about a process: the value, or a closure that finds the value and may block.
/// ``ProcessLookups`` runs such closures.
package enum Lookup<Value: Sendable>: Sendable {
    case known(Value)
    /// A query that must not run on the loop's thread, since it may wait for a file system or a process.
    case mayBlock(@Sendable () -> Value)

    /// The value; finding it may block.
    package var value: Value {
        switch self {
        case .known(let value): value
        case .mayBlock(let find): find()
        }
    }
}

/// The runner of queries about processes that may block: up to four run at a time, on threads of their own, each with a
/// timeout (E4). The service's access checks and the activity tracker use it.
///
/// After a timeout, further queries about the same process fail at once, as long as the thread of the first one is
/// blocked. A single process thus blocks one thread at most.
///
/// Threads: the loop's thread.
package final class ProcessLookups {
    /// The progress of a query, which its thread sets.
    private final class QueryProgress: Sendable {
        enum State {
            /// The query has not begun.
            case waiting
            /// The query is running.
            case asking
            /// The query has ended.
            case over
        }

        private let value = Locked(State.waiting)
        var state: State {
            get { value.withLock { $0 } }
            set { value.withLock { $0 = newValue } }
        }
    }

    /// The maximum number of queued queries. Further queries fail.
    private static let maxWaiting = 256

    private let work: BlockingWork
    /// The queries that timed out while they ran, by the process id.
    private var stuck: [UInt32: QueryProgress] = [:]

    /// - Parameter bound: The timeout of a query, in milliseconds.
    package init(on context: MainContext, bound: UInt32 = 1000) {
        work = BlockingWork(on: context, priority: .of(.control), bound: bound, width: 4)
    }

    /// Whether no query is running or queued.
    package var isIdle: Bool { work.isIdle }

    /// Whether a thread is blocked in a query about this process.
    package func isStuck(_ processID: UInt32) -> Bool {
        guard let progress = stuck[processID] else { return false }
        if progress.state == .over { stuck[processID] = nil }
        return progress.state != .over
    }

    /// Runs a query.
    ///
    /// - Parameter completion: Called during this call if the value is known, or if the query can't be run (with nil).
    ///   Otherwise called later on the loop's thread, with nil after a timeout.
    package func find<Value: Sendable>(
        _ lookup: Lookup<Value>, of processID: UInt32, then completion: @escaping (Value?) -> Void
    ) {
        switch lookup {
        case .known(let value): completion(value)
        case .mayBlock(let find):
            guard !isStuck(processID), work.waitingCount < Self.maxWaiting else { return completion(nil) }
            let progress = QueryProgress()
            work.run {
                progress.state = .asking
                defer { progress.state = .over }
                return find()
            } then: { [unowned self] value in
                // A timeout while the query runs: its thread is blocked. A query without a thread never began.
                if value == nil, progress.state == .asking { stuck[processID] = progress }
                completion(value)
            }
        }
    }
}
