// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonThreadDelivery
import Foundation
import Synchronization
import Testing

@Suite("Delivery targets of observers", .limited)
struct TargetTests {
    @Test("An operation queue with several concurrent operations runs one delivery at a time, in order")
    func operationQueue() throws {
        let operations = OperationQueue()
        operations.maxConcurrentOperationCount = 4
        var targets = OperationQueueTargets()
        let target = targets.target(for: operations)
        let running = Atomic(0)
        let most = Atomic(0)
        let ran = Locked<[Int]>([])
        let done = Doorbell()
        for number in 0..<2_000 {
            let lost = target.deliver(byteCount: 1) {
                let now = running.add(1, ordering: .relaxed).newValue
                most.max(now, ordering: .relaxed)
                ran.withLock { $0.append(number) }
                running.subtract(1, ordering: .relaxed)
                if number == 1_999 { done.ring() }
            }
            #expect(lost == 0)
        }
        try done.wait("the last delivery")
        #expect(ran.withLock { $0 } == Array(0..<2_000))
        #expect(most.load(ordering: .relaxed) == 1)
    }

    @Test("Observers of one operation queue share a target; the main queue's target is the main thread's")
    func sharedTargets() {
        let (one, other) = (OperationQueue(), OperationQueue())
        var targets = OperationQueueTargets()
        let target = targets.target(for: one) as AnyObject
        #expect(targets.target(for: one) as AnyObject === target)
        #expect(targets.target(for: other) as AnyObject !== target)
        #expect(targets.target(for: .main) as AnyObject === MainThreadTarget.shared)
    }

    @Test("A target holds its operation queue, and is released with the last observer")
    func operationQueueLife() {
        weak var watched: OperationQueue?
        var targets = OperationQueueTargets()
        var target: (any DeliveryTarget)?
        do {
            let operations = OperationQueue()
            watched = operations
            target = targets.target(for: operations)
        }
        #expect(watched != nil && target != nil)
        target = nil
        #expect(watched == nil)
    }

    @Test("A thread target runs deliveries in order, starts with the first, and ends with the target")
    func ownThread() throws {
        final class Mark: Sendable {
            let ended: Doorbell
            init(_ ended: Doorbell) { self.ended = ended }
            deinit { ended.ring() }
        }
        let threads = Locked<Set<UInt>>([])
        let ran = Locked<[Int]>([])
        let (done, ended) = (Doorbell(), Doorbell())
        var target: OwnThreadTarget? = OwnThreadTarget()
        for number in 0..<1_000 {
            _ = target?.deliver(byteCount: 1) {
                // Ends with its thread.
                if number == 0 { Thread.current.threadDictionary["mark"] = Mark(ended) }
                _ = threads.withLock { $0.insert(UInt(bitPattern: ObjectIdentifier(Thread.current).hashValue)) }
                ran.withLock { $0.append(number) }
                if number == 999 { done.ring() }
            }
        }
        try done.wait("the last delivery")
        #expect(ran.withLock { $0 } == Array(0..<1_000))
        #expect(threads.withLock { $0.count } == 1)
        target = nil
        try ended.wait("the end of the thread")
    }

    @Test("An ended context accepts no delivery, reports that, and counts the loss")
    func endedContext() {
        let before = ContextDelivery.lost.load(ordering: .relaxed)
        var context: MainContext? = MainContext()
        let delivery = ContextDelivery.to(context!)
        #expect(delivery === ContextDelivery.to(context!))
        let ran = Atomic(0)
        #expect(delivery.append(byteCount: 1) { ran.add(1, ordering: .relaxed) })
        #expect(!delivery.isClosed)
        context = nil
        #expect(delivery.isClosed)
        #expect(!delivery.append(byteCount: 1) { ran.add(1, ordering: .relaxed) })
        #expect(ran.load(ordering: .relaxed) == 0)
        // Others may lose some meanwhile.
        #expect(ContextDelivery.lost.load(ordering: .relaxed) >= before + 2)
    }

    @Test("An observation ends once, by cancellation or by release")
    func observation() {
        let ends = Atomic(0)
        var observation: Observation? = Observation { ends.add(1, ordering: .relaxed) }
        #expect(observation != nil && ends.load(ordering: .relaxed) == 0)
        observation = nil
        #expect(ends.load(ordering: .relaxed) == 1)
        let other = Observation { ends.add(1, ordering: .relaxed) }
        other.cancel()
        other.cancel()
        #expect(ends.load(ordering: .relaxed) == 2)
        withExtendedLifetime(other) {}
        #expect(ends.load(ordering: .relaxed) == 2)
    }
}
