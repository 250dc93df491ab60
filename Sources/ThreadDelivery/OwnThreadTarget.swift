// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation
import Synchronization

/// A thread of the library as delivery target, for programs that run no loop (`defaultDelivery = .ownQueue`).
///
/// The target uses a thread and not a dispatch queue. On Linux the first use of a dispatch queue starts a timer that
/// fires every second for the life of the process, but a program that only waits for notifications should sleep.
///
/// The first delivery starts the thread. The thread ends when this object is released; waiting work is then discarded.
package final class OwnThreadTarget: DeliveryTarget {
    private let context = MainContext()
    private let queue: DeliveryQueue
    private let source: SignalledSource
    private let life = ThreadState()

    /// The state that this object shares with its thread.
    private final class ThreadState: Sendable {
        let hasStarted = Atomic(false)
        let isOver = Atomic(false)
    }

    package init() {
        // Weak: the source holds the queue, so the queue's closures must not hold the source.
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

    package func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        if !life.hasStarted.exchange(true, ordering: .acquiringAndReleasing) { startThread() }
        return queue.append(byteCount: byteCount, work)
    }

    private func startThread() {
        // The closure captures nothing of self, because the thread must not keep this object alive.
        let (context, life) = (context, life)
        Thread {
            // Foundation would forget a name that is set before the start.
            Thread.current.name = "carillon-queue"
            while !life.isOver.load(ordering: .acquiring) { context.iterate(mayBlock: true) }
        }.start()
    }
}
