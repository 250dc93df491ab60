// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation
import Synchronization

/// A queue of operations.
///
/// One operation empties what waits, however many notifications that are, and it is the only one at a time: they stay in
/// order also on a queue that runs several operations at once. The queue is retained: an observer's queue lives as long
/// as the observer.
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

/// The targets of the operation queues that observers asked for. Observers of one queue share a target, so that they
/// run in order.
package struct OperationQueueTargets {
    private var entries: [ObjectIdentifier: Weak<OperationQueueTarget>] = [:]

    package init() {}

    package mutating func target(for queue: OperationQueue) -> any DeliveryTarget {
        if queue === OperationQueue.main { return MainThreadTarget.shared }
        // A target that lives retains its queue: the address is still that queue's.
        if let target = entries[ObjectIdentifier(queue)]?.object { return target }
        entries = entries.filter { $0.value.object != nil }
        let target = OperationQueueTarget(queue)
        entries[ObjectIdentifier(queue)] = Weak(target)
        return target
    }
}
