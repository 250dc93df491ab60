// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation

/// Synchronous calls on operation queues (C4), with detection and resolution of deadlocks between waiting threads. A
/// post uses it for an observer with a queue: the post waits until the observer has run there.
///
/// A thread that waits inside an operation occupies a slot of that operation's queue: a serial queue has one slot, and
/// runs nothing else meanwhile. Threads can therefore wait in a cycle. For example, an observer on queue 1 posts to an
/// observer on queue 2, which posts to an observer on queue 1.
///
/// When a wait would complete a cycle, a thread of the cycle that occupies a slot of the called queue runs the call
/// itself, on top of its own wait. Therefore a call always runs on a thread of its queue, a call on the main queue runs
/// on the main thread, and a serial queue stays serial.
enum SynchronousQueueCalls {
    /// Runs `body` on `queue` and waits for it. On a thread of `queue` itself, `body` runs at once.
    ///
    /// - Returns: the result of `body`, or nil when the queue cancelled the operation.
    static func run<Result: Sendable>(
        on queue: OperationQueue, _ body: @escaping @Sendable () -> Result
    ) -> Result? {
        let occupiedQueue = OperationQueue.current ?? (MainContext.isMainThread ? .main : nil)
        if occupiedQueue === queue { return body() }
        let outcome = Outcome<Result>()
        let thread = WaitingThread.current
        let operation = WaitedOperation(for: queue, waiter: thread) {
            let result = body()
            outcome.result.withLock { $0 = result }
        }
        if !thread.begin(operation, on: occupiedQueue) { queue.addOperation(operation) }
        thread.wait(for: operation)
        return outcome.result.withLock { $0.take() }
    }

    /// The result of the body, which the queue's thread sets.
    private final class Outcome<Result: Sendable>: Sendable {
        let result = Locked<Result?>(nil)
    }
}

/// The graph of all waits in the process, in which cycles are found.
private struct Waits {
    /// The threads that wait and occupy a slot of a queue.
    var threads: [WaitingThread] = []

    /// Returns the deadlocked threads if `thread` is one of them; otherwise an empty array.
    ///
    /// It begins with all waiting threads, and removes threads that can continue, repeatedly, until none of them can. A
    /// thread can continue if the operation that it waits for can:
    ///
    /// - An operation that runs can end unless its own thread is deadlocked.
    /// - An operation that waits can start unless deadlocked threads occupy all slots of its queue.
    func cycle(with thread: WaitingThread) -> [WaitingThread] {
        var cycle = threads.filter(\.isWaiting)
        while true {
            let left = cycle.filter { waiting in
                guard let operation = waiting.waits.last?.operation else { return false }
                switch operation.stage {
                case .over: return false
                case .running(let runner): return cycle.contains { $0 === runner }
                case .waiting: return cycle.count { $0.occupiesSlot(for: operation.queue) } >= operation.slotCount
                }
            }
            if left.count == cycle.count { break }
            cycle = left
        }
        return cycle.contains { $0 === thread } ? cycle : []
    }

    /// Resolves a deadlock, if `thread` is part of one. It assigns an operation that waits to a thread of the cycle
    /// that occupies a slot of its queue. The thread that waits for the operation can then continue, and with it the
    /// others.
    ///
    /// - Returns: the thread with the assigned operation, which the caller must wake; nil without a deadlock.
    func breakCycle(with thread: WaitingThread) -> WaitingThread? {
        // Usually no other thread waits.
        guard threads.count > 1 else { return nil }
        let cycle = cycle(with: thread)
        for waiting in cycle {
            guard let operation = waiting.waits.last?.operation, case .waiting = operation.stage,
                let assignee = cycle.first(where: { $0.occupiesSlot(for: operation.queue) })
            else { continue }
            operation.stage = .running(on: assignee)
            assignee.assignedOperations.append(operation)
            return assignee
        }
        return nil
    }
}

/// The waits of the process; its lock guards the variables of all types in this file.
private let allWaits = Locked(Waits())

/// A thread that waits for operations, or has waited.
private final class WaitingThread: @unchecked Sendable {
    // Sendable: the variables are touched only under the lock of `allWaits`.

    /// A wait for an operation.
    struct Wait {
        let operation: WaitedOperation
        /// The queue of which the waiting thread occupies a slot; nil when the thread runs no operation.
        let queue: OperationQueue?
    }

    /// The object of the calling thread.
    static var current: WaitingThread {
        if let thread = threads.value { return thread }
        let thread = WaitingThread()
        threads.value = thread
        return thread
    }

    private static let threads = ThreadLocal<WaitingThread>()

    /// The nested waits of the thread, the innermost last.
    var waits: [Wait] = []
    /// Whether the thread waits now. False while it runs an assigned operation during its wait.
    var isWaiting = false
    /// The operations that are assigned to the thread, which it runs during its wait.
    var assignedOperations: [WaitedOperation] = []
    /// The semaphore that ends the sleep of the thread.
    private let semaphore = DispatchSemaphore(value: 0)

    /// Whether the thread occupies a slot of this queue in its innermost wait.
    func occupiesSlot(for queue: OperationQueue) -> Bool {
        waits.last?.queue === queue
    }

    func wake() {
        semaphore.signal()
    }

    /// Records that the thread will wait for an operation, and resolves the deadlock that this may complete.
    ///
    /// - Parameter queue: the queue of which the thread occupies a slot; nil for none.
    /// - Returns: whether a waiting thread runs the operation, so that it must not be added to its queue.
    func begin(_ operation: WaitedOperation, on queue: OperationQueue?) -> Bool {
        let (assignee, isServed) = allWaits.withLock { all -> (WaitingThread?, Bool) in
            waits.append(Wait(operation: operation, queue: queue))
            isWaiting = true
            // A thread that occupies no slot blocks no other thread, so it is not part of a cycle.
            guard queue != nil else { return (nil, false) }
            if waits.count(where: { $0.queue != nil }) == 1 { all.threads.append(self) }
            let assignee = all.breakCycle(with: self)
            if case .waiting = operation.stage { return (assignee, false) }
            return (assignee, true)
        }
        assignee?.wake()
        return isServed
    }

    /// Waits until the operation is over, and runs assigned operations meanwhile.
    func wait(for operation: WaitedOperation) {
        while true {
            let (job, isOver) = allWaits.withLock { all -> (WaitedOperation?, Bool) in
                if !assignedOperations.isEmpty {
                    isWaiting = false
                    return (assignedOperations.removeFirst(), false)
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
                semaphore.wait()
                continue
            }
            job.runBody()
            let assignee = allWaits.withLock { all -> WaitingThread? in
                isWaiting = true
                // Another thread may have begun to wait meanwhile, so that this wait completes a cycle now.
                return all.breakCycle(with: self)
            }
            assignee?.wake()
        }
    }
}

/// An operation for which a thread waits. Either its queue or an assigned thread runs it. The wait ends at once when
/// the operation is cancelled. Foundation's own wait would end only when the queue reaches the operation, and a
/// suspended queue never does.
private final class WaitedOperation: Operation, @unchecked Sendable {
    // Sendable: the variables are touched only under the lock of `allWaits`.
    /// The progress of the operation: it runs once, or is cancelled.
    enum Stage {
        case waiting
        case running(on: WaitingThread)
        case over
    }

    /// The queue that runs the operation.
    let queue: OperationQueue
    /// The number of slots of the queue: the operations that it runs at once.
    let slotCount: Int
    var stage = Stage.waiting
    /// The body; nil once it has been taken.
    private var body: (@Sendable () -> Void)?
    /// The thread that waits for the operation.
    private let waiter: WaitingThread

    init(for queue: OperationQueue, waiter: WaitingThread, _ body: @escaping @Sendable () -> Void) {
        self.queue = queue
        let slotCount = queue.maxConcurrentOperationCount
        self.slotCount = queue === OperationQueue.main ? 1 : slotCount > 0 ? slotCount : .max
        self.waiter = waiter
        self.body = body
    }

    /// Runs the body on a thread of the queue, unless an assigned thread does.
    override func main() {
        let thread = WaitingThread.current
        let isMine = allWaits.withLock { _ in
            guard case .waiting = stage else { return false }
            stage = .running(on: thread)
            return true
        }
        if isMine { runBody() }
    }

    /// Runs the body. The caller must have set the stage to `running`, so that no other thread runs it.
    func runBody() {
        takeBody()?()
        // The body was released before this, because its objects may have to end before the post returns.
        allWaits.withLock { _ in stage = .over }
        waiter.wake()
    }

    private func takeBody() -> (@Sendable () -> Void)? {
        allWaits.withLock { _ in body.take() }
    }

    override func cancel() {
        super.cancel()
        // The outer optional is nil if the operation has begun, so that it can't be cancelled. The body is released
        // outside of the lock.
        let body = allWaits.withLock { _ -> (@Sendable () -> Void)?? in
            guard case .waiting = stage else { return nil }
            stage = .over
            return .some(self.body.take())
        }
        if body != nil { waiter.wake() }
    }
}
