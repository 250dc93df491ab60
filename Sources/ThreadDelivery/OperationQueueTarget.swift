// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation
import Synchronization

/// An operation queue as delivery target.
///
/// One operation at a time runs the waiting work, for any number of notifications. Therefore the notifications stay in
/// order, even on a queue that runs several operations at once. The target retains the operation queue, so that the
/// queue lives as long as the observer.
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

/// Mutual exclusion for the operations that drain a delivery queue: several operations may run at once, but only one
/// may drain.
private final class ExclusiveDrain: Sendable {
    /// Weak: the delivery queue holds this object in its `wake` closure.
    let queue = Weak<DeliveryQueue>()
    private let operations: OperationQueue
    private let isRunning = Atomic(false)
    /// Whether another drain is due: an operation sets it, and returns if another operation is draining.
    private let isDue = Atomic(false)

    init(_ operations: OperationQueue) {
        self.operations = operations
    }

    func schedule() {
        operations.addOperation { self.run() }
    }

    private func run() {
        // Set before the check: an operation that is draining now sees it at its end, and schedules another drain.
        isDue.store(true, ordering: .sequentiallyConsistent)
        guard let queue = queue.object, !isRunning.exchange(true, ordering: .sequentiallyConsistent) else { return }
        isDue.store(false, ordering: .sequentiallyConsistent)
        queue.drain()
        isRunning.store(false, ordering: .sequentiallyConsistent)
        // Every wake-up needs a drain after it, and one drain stops after 2 ms, so work may remain.
        if isDue.exchange(false, ordering: .sequentiallyConsistent) || queue.count > 0 { schedule() }
    }
}

/// The targets of the operation queues that observers use. Observers of one queue share a target, so that they run in
/// order.
package struct OperationQueueTargets {
    private var entries: [ObjectIdentifier: Weak<OperationQueueTarget>] = [:]

    package init() {}

    /// Returns the target of an operation queue, which is created on first use.
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
