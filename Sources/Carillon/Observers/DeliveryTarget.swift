import Dispatch
import Foundation
import LocalNotifications
import MainLoop
import Synchronization

/// Where observers run.
protocol DeliveryTarget: Sendable {
    /// Has `work` run there, after everything before. Returns at once.
    ///
    /// - Returns: how many of the oldest were lost because nothing ran there in time (T2).
    func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int
}

/// At once on the bus thread: for what only hands on, such as a sequence's buffer.
struct DirectTarget: DeliveryTarget {
    func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        work()
        return 0
    }
}

/// The main thread, whichever loop it runs (M4, M5).
///
/// What waits is in one queue, and both the GLib main context and the main dispatch queue are told to empty it:
/// whichever of them runs comes first. The main dispatch queue is what `RunLoop.main` and `dispatchMain()` run.
final class MainThreadTarget: DeliveryTarget {
    static let shared = MainThreadTarget()

    private let queue = DeliveryQueue(
        wake: { MainThreadTarget.shared.wake() }, wakeAfterOthers: { MainThreadTarget.shared.wakeAfterOthers() })
    private let source = SignalledSource(on: .default, for: .ordinary, modes: [.common]) {
        MainThreadTarget.shared.drain()
    }

    private let loop = Locked(LoopWatch())

    private init() {
        MainQueueSource.install()
    }

    func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        if loop.withLock({ $0.shallWarn() }) {
            Log.warning(
                "observers wait for the main thread, which has run no loop so far; a program without one sets "
                    + "defaultDelivery = .ownQueue, or gives its observers a queue")
        }
        return queue.append(byteCount: byteCount, work)
    }

    private func wake() {
        source.signal()
        wakeMainQueue()
    }

    private func wakeAfterOthers() {
        source.signalAfterOthers()
        wakeMainQueue()
    }

    private func wakeMainQueue() {
        // In a mode that is no common one the GLib source waits for its end, and so does what it stands for.
        DispatchQueue.main.async { if self.source.isAllowed { self.drain() } }
    }

    private func drain() {
        loop.withLock { $0.hasRun = true }
        queue.drain { source.isAllowed }
    }
}

/// Notices that the main thread never runs a loop, which is the commonest reason for hearing nothing.
private struct LoopWatch {
    var hasRun = false
    private var firstDelivery: ContinuousClock.Instant?
    private var hasWarned = false

    /// Asked with every delivery. A program that is still starting up has some time.
    mutating func shallWarn() -> Bool {
        guard !hasRun, !hasWarned else { return false }
        let first = firstDelivery ?? .now
        firstDelivery = first
        hasWarned = ContinuousClock.now - first > .seconds(5)
        return hasWarned
    }
}

/// A queue of operations.
///
/// One operation empties what waits, however many notifications that are, and it is the only one at a time: they stay in
/// order also on a queue that runs several operations at once. The queue is retained: an observer's queue lives as long
/// as the observer.
final class QueueTarget: DeliveryTarget {
    private let queue: DeliveryQueue

    init(_ operations: OperationQueue) {
        let drain = ExclusiveDrain(operations)
        queue = DeliveryQueue(wake: { drain.schedule() })
        drain.queue.object = queue
    }

    func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        queue.append(byteCount: byteCount, work)
    }
}

/// Empties a delivery queue from operations, of which several may run at once.
private final class ExclusiveDrain: Sendable {
    /// Weak: what wakes a queue must not keep it.
    let queue = Weak<DeliveryQueue>()
    private let operations: OperationQueue
    private let isRunning = Atomic(false)
    /// Whether an operation found another one running, and left it to that.
    private let isDue = Atomic(false)

    init(_ operations: OperationQueue) {
        self.operations = operations
    }

    func schedule() {
        operations.addOperation { self.run() }
    }

    private func run() {
        // Before looking whether another one runs, which then goes on for this one.
        isDue.store(true, ordering: .sequentiallyConsistent)
        guard let queue = queue.object, !isRunning.exchange(true, ordering: .sequentiallyConsistent) else { return }
        isDue.store(false, ordering: .sequentiallyConsistent)
        queue.drain()
        isRunning.store(false, ordering: .sequentiallyConsistent)
        // The queue counts on every wake-up to be followed by a drain, and takes no more than its share in each.
        if isDue.exchange(false, ordering: .sequentiallyConsistent) || queue.count > 0 { schedule() }
    }
}

/// A thread of the library's own, for programs that run no loop.
///
/// Not a dispatch queue: on Linux the first use of one starts a timer in this process that fires every second, for ever,
/// and a program that only listens shall sleep. The thread is started by the first delivery, and ends when this object
/// goes away; what waits then is dropped.
final class ThreadTarget: DeliveryTarget {
    private let context = MainContext()
    private let queue: DeliveryQueue
    private let source: SignalledSource
    private let life = Life()

    private final class Life: Sendable {
        let hasStarted = Atomic(false)
        let isOver = Atomic(false)
    }

    init() {
        // What wakes a queue must not keep it.
        let reference = Weak<SignalledSource>()
        let queue = DeliveryQueue(
            wake: { reference.object?.signal() }, wakeAfterOthers: { reference.object?.signalAfterOthers() })
        source = SignalledSource(on: context, priority: .default) { queue.drain() }
        self.queue = queue
        reference.object = source
    }

    deinit {
        life.isOver.store(true, ordering: .releasing)
        context.wakeUp()
    }

    func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        if !life.hasStarted.exchange(true, ordering: .acquiringAndReleasing) { startThread() }
        return queue.append(byteCount: byteCount, work)
    }

    private func startThread() {
        // Nothing of self: the thread must not keep this object.
        let (context, life) = (context, life)
        Thread {
            // Before the start Foundation would forget it.
            Thread.current.name = "carillon-queue"
            while !life.isOver.load(ordering: .acquiring) { context.iterate(mayBlock: true) }
        }.start()
    }
}

/// The targets of the operation queues that observers asked for. Observers of one queue share a target, so that they
/// run in order.
struct OperationQueueTargets {
    private var entries: [ObjectIdentifier: Weak<QueueTarget>] = [:]

    mutating func target(for queue: OperationQueue) -> any DeliveryTarget {
        if queue === OperationQueue.main { return MainThreadTarget.shared }
        // A target that lives retains its queue: the address is still that queue's.
        if let target = entries[ObjectIdentifier(queue)]?.object { return target }
        entries = entries.filter { $0.value.object != nil }
        let target = QueueTarget(queue)
        entries[ObjectIdentifier(queue)] = Weak(target)
        return target
    }
}
