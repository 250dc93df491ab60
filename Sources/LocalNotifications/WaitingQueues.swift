import Foundation
import MainLoop

/// Runs something on an operation queue and waits for it (C4), without waiting for what waits for us.
///
/// A queue that already waits further up the same chain of posts counts as the current one: q→q2→q runs the last part
/// at once, on the thread that is there. So does a queue all of whose threads wait, through whatever other chains, for
/// a queue of this chain: two queues that post to each other at the same moment would block each other for ever. In
/// both cases nothing else runs on that queue meanwhile, so a serial queue stays serial.
enum WaitingQueues {
    /// The queues on whose behalf the thread works, from the first post on; the last is the current one.
    private final class Chain {
        let queues: [OperationQueue]

        init(_ queues: [OperationQueue]) {
            self.queues = queues
        }
    }

    private static let chain = ThreadLocal<Chain>()

    /// How many operations of a queue wait for which other queue.
    private struct Waits {
        private var counts: [ObjectIdentifier: [ObjectIdentifier: Int]] = [:]
        /// How many operations a queue runs at once, for those that wait.
        private var widths: [ObjectIdentifier: Int] = [:]

        mutating func begin(from waiting: OperationQueue, on queue: OperationQueue) {
            let id = ObjectIdentifier(waiting)
            counts[id, default: [:]][ObjectIdentifier(queue), default: 0] += 1
            let width = waiting.maxConcurrentOperationCount
            widths[id] = width > 0 ? width : .max
        }

        mutating func end(from waiting: OperationQueue, on queue: OperationQueue) {
            let (id, queueID) = (ObjectIdentifier(waiting), ObjectIdentifier(queue))
            counts[id]![queueID]! -= 1
            if counts[id]![queueID] == 0 { counts[id]![queueID] = nil }
            if counts[id]!.isEmpty {
                counts[id] = nil
                widths[id] = nil
            }
        }

        /// Whether `queue` can't go on before one of `others` does.
        func blocks(_ queue: ObjectIdentifier, on others: Set<ObjectIdentifier>) -> Bool {
            var seen: Set<ObjectIdentifier> = []
            var pending = [queue]
            while let next = pending.popLast() {
                guard seen.insert(next).inserted, let waits = counts[next] else { continue }
                guard waits.values.reduce(0, +) >= widths[next]! else { continue }
                for other in waits.keys {
                    if others.contains(other) { return true }
                    pending.append(other)
                }
            }
            return false
        }
    }

    private static let waits = Locked(Waits())

    /// - Returns: what `body` returned, or nil when the queue cancelled the operation.
    static func run<Result: Sendable>(
        on queue: OperationQueue, _ body: @escaping @Sendable () -> Result
    ) -> Result? {
        var queues = chain.value?.queues ?? []
        if let current = OperationQueue.current ?? (Thread.isMainThread ? .main : nil), queues.last !== current {
            queues.append(current)
        }
        if queues.contains(where: { $0 === queue }) { return body() }

        let last = queues.last
        let ids = Set(queues.map(ObjectIdentifier.init))
        let mayWait = waits.withLock { waits in
            guard !waits.blocks(ObjectIdentifier(queue), on: ids) else { return false }
            if let last { waits.begin(from: last, on: queue) }
            return true
        }
        guard mayWait else { return body() }
        defer { if let last { waits.withLock { $0.end(from: last, on: queue) } } }

        let outcome = Outcome<Result>()
        let chainThere = Carried(queues + [queue])
        let operation = WaitedOperation {
            let before = chain.value
            chain.value = Chain(chainThere.value)
            defer { chain.value = before }
            let result = body()
            outcome.result.withLock { $0 = result }
        }
        queue.addOperation(operation)
        operation.wait()
        return outcome.result.withLock { $0 }
    }

    private final class Outcome<Result: Sendable>: Sendable {
        let result = Locked<Result?>(nil)
    }
}

/// An operation that nobody waits for any more once it is cancelled. Foundation's own wait ends when the queue comes to
/// it, which a suspended queue does not.
private final class WaitedOperation: Operation, @unchecked Sendable {
    // Sendable: what changes is locked.
    private enum Stage {
        case waiting
        case running
        case over
    }

    private let stage = Locked(Stage.waiting)
    private let end = DispatchSemaphore(value: 0)
    private let body: @Sendable () -> Void

    init(_ body: @escaping @Sendable () -> Void) {
        self.body = body
    }

    override func main() {
        guard leave(.waiting, for: .running) else { return }
        body()
        end.signal()
    }

    override func cancel() {
        super.cancel()
        if leave(.waiting, for: .over) { end.signal() }
    }

    func wait() {
        end.wait()
    }

    private func leave(_ old: Stage, for new: Stage) -> Bool {
        stage.withLock { stage in
            guard stage == old else { return false }
            stage = new
            return true
        }
    }
}
