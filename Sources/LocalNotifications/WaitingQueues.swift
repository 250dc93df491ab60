// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation

/// Runs something on an operation queue and waits for it (C4), without waiting for what waits for us.
///
/// A thread that waits here stands for its queue: nothing else comes to the queue's place before it goes on. When the
/// last thread of a circle begins to wait (q→q2→q, or the main thread and a queue that post to each other), the body
/// is run by the thread that waits for its queue, on top of what that waits for. So a body always runs on a thread of its
/// queue, and one for the main queue on the main thread; a serial queue stays serial.
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

/// Who waits for what, in the whole process.
private struct Waits {
    /// The threads that wait and stand for a queue.
    var threads: [WaitingThread] = []

    /// The threads that wait for each other, and go on no more by themselves if `thread` is one of them.
    ///
    /// A thread waits for an operation. One that runs already ends when its thread goes on; one that its queue has not
    /// come to yet, when one of the threads that use up the queue's places goes on.
    func circle(with thread: WaitingThread) -> [WaitingThread] {
        var circle = threads.filter(\.isWaiting)
        while true {
            let left = circle.filter { waiting in
                guard let operation = waiting.waits.last?.operation else { return false }
                switch operation.stage {
                case .over: return false
                case .running(let runner): return circle.contains { $0 === runner }
                case .waiting: return circle.count { $0.stands(for: operation.queue) } >= operation.width
                }
            }
            if left.count == circle.count { break }
            circle = left
        }
        return circle.contains { $0 === thread } ? circle : []
    }

    /// Has a thread of a circle run an operation of its queue, for which another one of the circle waits: then that
    /// goes on, and with it the others.
    ///
    /// - Returns: the thread, which is to be woken.
    func breakCircle(with thread: WaitingThread) -> WaitingThread? {
        // Most of the time nobody else waits.
        guard threads.count > 1 else { return nil }
        let circle = circle(with: thread)
        for waiting in circle {
            guard let operation = waiting.waits.last?.operation, case .waiting = operation.stage,
                let server = circle.first(where: { $0.stands(for: operation.queue) })
            else { continue }
            operation.stage = .running(on: server)
            server.jobs.append(operation)
            return server
        }
        return nil
    }
}

private let allWaits = Locked(Waits())

/// A thread, as far as it waits for operations.
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

    /// One inside the other.
    var waits: [Wait] = []
    /// Whether it waits now, and does not run a job meanwhile.
    var isWaiting = false
    /// What it shall run while it waits.
    var jobs: [WaitedOperation] = []
    private let alarm = DispatchSemaphore(value: 0)

    func stands(for queue: OperationQueue) -> Bool {
        waits.last?.queue === queue
    }

    func wake() {
        alarm.signal()
    }

    /// Says that the thread will wait.
    ///
    /// - Returns: whether another thread runs the operation, so that the queue need not.
    func begin(_ operation: WaitedOperation, on queue: OperationQueue?) -> Bool {
        let (server, isServed) = allWaits.withLock { all -> (WaitingThread?, Bool) in
            waits.append(Wait(operation: operation, queue: queue))
            isWaiting = true
            // Who stands for no queue is in nobody's way.
            guard queue != nil else { return (nil, false) }
            if waits.count(where: { $0.queue != nil }) == 1 { all.threads.append(self) }
            let server = all.breakCircle(with: self)
            if case .waiting = operation.stage { return (server, false) }
            return (server, true)
        }
        server?.wake()
        return isServed
    }

    /// Waits until the operation is over, and runs what it is given meanwhile.
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
                // Who began to wait meanwhile may be waiting for this thread.
                return all.breakCircle(with: self)
            }
            server?.wake()
        }
    }
}

/// An operation that a thread waits for. Nobody waits any more once it is cancelled: Foundation's own wait ends when the
/// queue comes to it, which a suspended queue does not.
private final class WaitedOperation: Operation, @unchecked Sendable {
    // Sendable: the variables are touched only under the lock of `allWaits`.
    enum Stage {
        case waiting
        case running(on: WaitingThread)
        case over
    }

    let queue: OperationQueue
    /// How many operations the queue runs at once.
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

    /// Runs the body, which nobody else does.
    func runBody() {
        takeBody()?()
        // Released by now: what it holds may be over when the post returns.
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
