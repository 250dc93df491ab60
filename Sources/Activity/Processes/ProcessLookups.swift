// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The answer to a query about a process, or a closure that finds it.
package enum Lookup<Value: Sendable>: Sendable {
    case known(Value)
    /// A query to be run outside the loop, since it may wait for a file system or a process.
    case mayBlock(@Sendable () -> Value)

    /// The value, which may block.
    package var value: Value {
        switch self {
        case .known(let value): value
        case .mayBlock(let find): find()
        }
    }
}

/// A runner for queries about processes that keeps them off the loop (E4).
///
/// After a timeout, a process is not queried again as long as the thread of that query is blocked.
///
/// Threads: that of the loop.
package final class ProcessLookups {
    private final class Ticket: Sendable {
        enum State {
            case waiting
            case asking
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
    private var stuck: [UInt32: Ticket] = [:]

    /// - Parameter bound: The timeout of a query, in milliseconds.
    package init(on context: MainContext, bound: UInt32 = 1000) {
        work = BlockingWork(on: context, priority: .of(.control), bound: bound, width: 4)
    }

    /// Whether no query is running or queued.
    package var isIdle: Bool { work.isIdle }

    /// Whether a thread is blocked in a query about this process.
    package func isStuck(_ processID: UInt32) -> Bool {
        guard let ticket = stuck[processID] else { return false }
        if ticket.state == .over { stuck[processID] = nil }
        return ticket.state != .over
    }

    /// Runs a query.
    ///
    /// - Parameter completion: Called at once with a known value, otherwise later, with nil if the query failed or
    ///   timed out.
    package func find<Value: Sendable>(
        _ lookup: Lookup<Value>, of processID: UInt32, then completion: @escaping (Value?) -> Void
    ) {
        switch lookup {
        case .known(let value): completion(value)
        case .mayBlock(let find):
            guard !isStuck(processID), work.waitingCount < Self.maxWaiting else { return completion(nil) }
            let ticket = Ticket()
            work.run {
                ticket.state = .asking
                defer { ticket.state = .over }
                return find()
            } then: { [unowned self] value in
                // Without a free thread the query was not started.
                if value == nil, ticket.state == .asking { stuck[processID] = ticket }
                completion(value)
            }
        }
    }
}
