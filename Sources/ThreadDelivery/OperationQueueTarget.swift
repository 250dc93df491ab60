// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation
import Synchronization

/// An operation queue as a target.
///
/// One operation at a time runs the waiting work, for any number of notifications. Therefore they stay in order, even
/// on a queue that runs several operations at once. The target retains the operation queue: an observer's queue lives
/// as long as the observer.
final class OperationQueueTarget: DeliveryTarget {
    private let queue: DeliveryQueue

    init(_ operations: OperationQueue) {
        let drain = ExclusiveDrain(operations)
        queue = DeliveryQueue(wake: { drain.schedule() })
        drain.queue.object = queue
    }

    package func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        queue.append(byteCount: byteCount, work)
    }
}

/// The draining of a delivery queue by operations, of which several may run at once.
private final class ExclusiveDrain: Sendable {
    /// Weak: the closure that wakes a queue must not keep it alive.
    let queue = Weak<DeliveryQueue>()
    private let operations: OperationQueue
    private let isRunning = Atomic(false)
    /// Whether an operation found another one running, and left its work to that one.
    private let isDue = Atomic(false)

    init(_ operations: OperationQueue) {
        self.operations = operations
    }

    func schedule() {
        operations.addOperation { self.run() }
    }

    private func run() {
        // This precedes the check for a running operation, which then continues for this one.
        isDue.store(true, ordering: .sequentiallyConsistent)
        guard let queue = queue.object, !isRunning.exchange(true, ordering: .sequentiallyConsistent) else { return }
        isDue.store(false, ordering: .sequentiallyConsistent)
        queue.drain()
        isRunning.store(false, ordering: .sequentiallyConsistent)
        // The queue relies on a drain after every wake-up, and each drain takes no more than its share.
        if isDue.exchange(false, ordering: .sequentiallyConsistent) || queue.count > 0 { schedule() }
    }
}

/// The targets of the operation queues that observers use. Observers of one queue share a target, so that they run in
/// order.
package struct OperationQueueTargets {
    private var entries: [ObjectIdentifier: Weak<OperationQueueTarget>] = [:]

    package init() {}

    package mutating func target(for queue: OperationQueue) -> any DeliveryTarget {
        if queue === OperationQueue.main { return MainThreadTarget.shared }
        // A live target retains its queue, so the address still identifies that queue.
        if let target = entries[ObjectIdentifier(queue)]?.object { return target }
        entries = entries.filter { $0.value.object != nil }
        let target = OperationQueueTarget(queue)
        entries[ObjectIdentifier(queue)] = Weak(target)
        return target
    }
}
