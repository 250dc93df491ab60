// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The answer to a question about a process, or the way to it.
package enum Lookup<Value: Sendable>: Sendable {
    case known(Value)
    /// To be found out where the loop does not wait: a file system or a process is asked that may not answer.
    case mayBlock(@Sendable () -> Value)

    /// The value, whatever that takes.
    package var value: Value {
        switch self {
        case .known(let value): value
        case .mayBlock(let find): find()
        }
    }
}

/// Finds out what is to be known of processes, without having the loop wait for it (E4).
///
/// A process of which something could not be found out in time is not asked about again as long as the thread that asks
/// is stuck.
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

    /// The maximum of questions that wait for others. More get no answer.
    private static let maxWaiting = 256

    private let work: BlockingWork
    private var stuck: [UInt32: Ticket] = [:]

    /// - Parameter bound: after so many milliseconds nothing is known of a process.
    package init(on context: MainContext, bound: UInt32 = 1000) {
        work = BlockingWork(on: context, priority: .of(.control), bound: bound, width: 4)
    }

    /// Whether nothing is being found out.
    package var isIdle: Bool { work.isIdle }

    /// Whether a thread waits for something that this process does not answer.
    package func isStuck(_ processID: UInt32) -> Bool {
        guard let ticket = stuck[processID] else { return false }
        if ticket.state == .over { stuck[processID] = nil }
        return ticket.state != .over
    }

    /// Finds something out.
    ///
    /// - Parameter completion: called at once where it is known, otherwise later, with nil when it could not be found out.
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
                // Where there was no thread for it, nothing was asked.
                if value == nil, ticket.state == .asking { stuck[processID] = ticket }
                completion(value)
            }
        }
    }
}
