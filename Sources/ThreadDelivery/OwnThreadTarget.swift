// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation
import Synchronization

/// A thread of the library's own, for programs that run no loop.
///
/// Not a dispatch queue: on Linux the first use of one starts a timer in this process that fires every second, for ever,
/// and a program that only listens shall sleep. The thread is started by the first delivery, and ends when this object
/// goes away; what waits then is dropped.
package final class OwnThreadTarget: DeliveryTarget {
    private let context = MainContext()
    private let queue: DeliveryQueue
    private let source: SignalledSource
    private let life = Life()

    private final class Life: Sendable {
        let hasStarted = Atomic(false)
        let isOver = Atomic(false)
    }

    package init() {
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

    package func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
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
