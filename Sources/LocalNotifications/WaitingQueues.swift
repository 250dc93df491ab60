// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation

/// Synchronous calls on operation queues (C4), without deadlocks between threads that wait for each other.
///
/// A thread that waits here represents its queue: no other operation uses the queue's place before the thread
/// continues. Threads can wait in a cycle: q→q2→q, or the main thread and a queue that post to each other. When the
/// last thread of a cycle begins to wait, the thread that represents the body's queue runs the body, on top of its own
/// wait. Therefore a body always runs on a thread of its queue, and a body for the main queue on the main thread; a
/// serial queue stays serial.
enum WaitingQueues {
    /// - Returns: what `body` returned, or nil when the queue cancelled the operation.
    static func run<Result: Sendable>(
        on queue: OperationQueue, _ body: @escaping @Sendable () -> Result
    ) -> Result? {
        let here = OperationQueue.current ?? (MainContext.isMainThread ? .main : nil)
        if here === queue { return body() }
        let outcome = Outcome<Result>()
        let thread = WaitingThread.current
        let operation = WaitedOperation(for: queue, waiter: thread) {
            let result = body()
            outcome.result.withLock { $0 = result }
        }
        if !thread.begin(operation, on: here) { queue.addOperation(operation) }
        thread.wait(for: operation)
        return outcome.result.withLock { $0.take() }
    }

    private final class Outcome<Result: Sendable>: Sendable {
        let result = Locked<Result?>(nil)
    }
}

/// The waits of all threads in the process.
private struct Waits {
    /// The threads that wait and represent a queue.
    var threads: [WaitingThread] = []

    /// Returns the threads that wait for each other and can't continue by themselves, if `thread` is one of them.
    ///
    /// A thread waits for an operation. An operation that runs ends when its thread continues. An operation that its
    /// queue has not started yet starts when one of the threads in the queue's places continues.
    func cycle(with thread: WaitingThread) -> [WaitingThread] {
        var cycle = threads.filter(\.isWaiting)
        while true {
            let left = cycle.filter { waiting in
                guard let operation = waiting.waits.last?.operation else { return false }
                switch operation.stage {
                case .over: return false
                case .running(let runner): return cycle.contains { $0 === runner }
                case .waiting: return cycle.count { $0.stands(for: operation.queue) } >= operation.width
                }
            }
            if left.count == cycle.count { break }
            cycle = left
        }
        return cycle.contains { $0 === thread } ? cycle : []
    }

    /// Lets a thread of a cycle run an operation of its queue for which another thread of the cycle waits. Then that
    /// thread continues, and with it the others.
    ///
    /// - Returns: the thread, which the caller must wake.
    func breakCycle(with thread: WaitingThread) -> WaitingThread? {
        // Usually no other thread waits.
        guard threads.count > 1 else { return nil }
        let cycle = cycle(with: thread)
        for waiting in cycle {
            guard let operation = waiting.waits.last?.operation, case .waiting = operation.stage,
                let server = cycle.first(where: { $0.stands(for: operation.queue) })
            else { continue }
            operation.stage = .running(on: server)
            server.jobs.append(operation)
            return server
        }
        return nil
    }
}

private let allWaits = Locked(Waits())

/// The state of a thread that waits for operations.
private final class WaitingThread: @unchecked Sendable {
    // Sendable: the variables are touched only under the lock of `allWaits`.

    struct Wait {
        let operation: WaitedOperation
        /// The queue of the operation in which the thread waits; nil when it belongs to none.
        let queue: OperationQueue?
    }

    static var current: WaitingThread {
        if let thread = threads.value { return thread }
        let thread = WaitingThread()
        threads.value = thread
        return thread
    }

    private static let threads = ThreadLocal<WaitingThread>()

    /// The nested waits of the thread, the innermost last.
    var waits: [Wait] = []
    /// Whether the thread waits now and runs no job meanwhile.
    var isWaiting = false
    /// The operations that the thread must run while it waits.
    var jobs: [WaitedOperation] = []
    private let alarm = DispatchSemaphore(value: 0)

    func stands(for queue: OperationQueue) -> Bool {
        waits.last?.queue === queue
    }

    func wake() {
        alarm.signal()
    }

    /// Announces that the thread will wait.
    ///
    /// - Returns: whether another thread runs the operation, so that the queue need not.
    func begin(_ operation: WaitedOperation, on queue: OperationQueue?) -> Bool {
        let (server, isServed) = allWaits.withLock { all -> (WaitingThread?, Bool) in
            waits.append(Wait(operation: operation, queue: queue))
            isWaiting = true
            // A thread that represents no queue blocks no other thread.
            guard queue != nil else { return (nil, false) }
            if waits.count(where: { $0.queue != nil }) == 1 { all.threads.append(self) }
            let server = all.breakCycle(with: self)
            if case .waiting = operation.stage { return (server, false) }
            return (server, true)
        }
        server?.wake()
        return isServed
    }

    /// Waits until the operation is over, and runs assigned jobs meanwhile.
    func wait(for operation: WaitedOperation) {
        while true {
            let (job, isOver) = allWaits.withLock { all -> (WaitedOperation?, Bool) in
                if !jobs.isEmpty {
                    isWaiting = false
                    return (jobs.removeFirst(), false)
                }
                guard case .over = operation.stage else { return (nil, false) }
                let wait = waits.removeLast()
                isWaiting = false
                if wait.queue != nil, waits.count(where: { $0.queue != nil }) == 0 {
                    all.threads.removeAll { $0 === self }
                }
                return (nil, true)
            }
            if isOver { return }
            guard let job else {
                alarm.wait()
                continue
            }
            job.runBody()
            let server = allWaits.withLock { all -> WaitingThread? in
                isWaiting = true
                // A thread that began to wait meanwhile may wait for this thread.
                return all.breakCycle(with: self)
            }
            server?.wake()
        }
    }
}

/// An operation that a thread waits for. The wait ends at once when the operation is cancelled. Foundation's own wait
/// would end only when the queue reaches the operation, which a suspended queue never does.
private final class WaitedOperation: Operation, @unchecked Sendable {
    // Sendable: the variables are touched only under the lock of `allWaits`.
    enum Stage {
        case waiting
        case running(on: WaitingThread)
        case over
    }

    let queue: OperationQueue
    /// The number of operations that the queue runs at once.
    let width: Int
    var stage = Stage.waiting
    private var body: (@Sendable () -> Void)?
    private let waiter: WaitingThread

    init(for queue: OperationQueue, waiter: WaitingThread, _ body: @escaping @Sendable () -> Void) {
        self.queue = queue
        let width = queue.maxConcurrentOperationCount
        self.width = queue === OperationQueue.main ? 1 : width > 0 ? width : .max
        self.waiter = waiter
        self.body = body
    }

    override func main() {
        let thread = WaitingThread.current
        let isMine = allWaits.withLock { _ in
            guard case .waiting = stage else { return false }
            stage = .running(on: thread)
            return true
        }
        if isMine { runBody() }
    }

    /// Runs the body, which no other thread runs.
    func runBody() {
        takeBody()?()
        // The body is released by now: objects that it holds may end when the post returns.
        allWaits.withLock { _ in stage = .over }
        waiter.wake()
    }

    private func takeBody() -> (@Sendable () -> Void)? {
        allWaits.withLock { _ in body.take() }
    }

    override func cancel() {
        super.cancel()
        let body = allWaits.withLock { _ -> (@Sendable () -> Void)?? in
            guard case .waiting = stage else { return nil }
            stage = .over
            return .some(self.body.take())
        }
        if body != nil { waiter.wake() }
    }
}
