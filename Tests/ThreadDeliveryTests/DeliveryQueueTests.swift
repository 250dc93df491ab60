// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonThreadDelivery
import Synchronization
import Testing

@Suite("T1, T2: the delivery queue", .limited)
struct DeliveryQueueTests {
    /// What the tests see of a queue: how often it woke its target, and what ran.
    final class Probe: Sendable {
        let wakes = Atomic(0)
        let ran = Locked<[Int]>([])

        func note(_ number: Int) -> @Sendable () -> Void {
            { self.ran.withLock { $0.append(number) } }
        }

        var numbers: [Int] { ran.withLock { $0 } }
    }

    private func queue(_ probe: Probe, _ limits: DeliveryQueue.Limits = .standard) -> DeliveryQueue {
        // Time stands still: how long a machine takes for an item is no matter here.
        let wake: @Sendable () -> Void = { probe.wakes.add(1, ordering: .relaxed) }
        return DeliveryQueue(limits: limits, clock: { 0 }, wake: wake, wakeAfterOthers: wake)
    }

    @Test("T1: a single wake-up is enough for a batch, which runs in order")
    func batch() {
        let probe = Probe()
        let queue = queue(probe)
        for number in 1...500 { queue.append(probe.note(number)) }
        #expect(probe.wakes.load(ordering: .relaxed) == 1)
        queue.drain()
        #expect(probe.numbers == Array(1...500))
        // And one that would have served a nested loop.
        #expect(probe.wakes.load(ordering: .relaxed) == 2)
        queue.drain()
        #expect(probe.wakes.load(ordering: .relaxed) == 2)
        queue.append(probe.note(501))
        #expect(probe.wakes.load(ordering: .relaxed) == 3)
    }

    @Test("T1: deliveries appended while the queue drains run in the same pass")
    func appendedMeanwhile() {
        let probe = Probe()
        let queue = queue(probe)
        queue.append { queue.append(probe.note(2)) }
        queue.drain()
        #expect(probe.numbers == [2])
    }

    @Test("T1: a nested drain continues with the next delivery, and the outer drain with the rest")
    func nested() {
        let probe = Probe()
        let queue = queue(probe)
        queue.append {
            probe.note(1)()
            var left = 2
            queue.drain {
                left -= 1
                return left >= 0
            }
            probe.note(10)()
        }
        for number in 2...4 { queue.append(probe.note(number)) }
        queue.drain()
        #expect(probe.numbers == [1, 2, 3, 10, 4])
    }

    @Test("T1: a delivery appended during the last one wakes the target, for a nested loop that waits")
    func wakesNestedLoop() {
        let probe = Probe()
        let queue = queue(probe)
        queue.append {
            let before = probe.wakes.load(ordering: .relaxed)
            queue.append(probe.note(1))
            #expect(probe.wakes.load(ordering: .relaxed) == before + 1)
        }
        queue.drain()
    }

    @Test("T1: a drain that has to stop keeps the rest and wakes the target again")
    func notAllowed() {
        let probe = Probe()
        let queue = queue(probe)
        for number in 1...3 { queue.append(probe.note(number)) }
        queue.drain { probe.numbers.count < 1 }
        #expect(probe.numbers == [1])
        #expect(queue.count == 2)
        #expect(probe.wakes.load(ordering: .relaxed) == 2)
        queue.drain()
        #expect(probe.numbers == [1, 2, 3])
    }

    @Test("T1: an endless stream yields to the target's other work after a time, not after a number")
    func fairness() {
        let others = Atomic(0)
        let ran = Atomic(0)
        let now = Atomic<Int64>(0)
        let queue = DeliveryQueue(
            clock: { now.load(ordering: .relaxed) }, wake: {}, wakeAfterOthers: { others.add(1, ordering: .relaxed) })
        @Sendable func again() {
            ran.add(1, ordering: .relaxed)
            // Each takes a tenth of a millisecond, and the share is two.
            now.add(100_000, ordering: .relaxed)
            queue.append(again)
        }
        queue.append(again)
        queue.drain()
        #expect(others.load(ordering: .relaxed) == 1)
        #expect(ran.load(ordering: .relaxed) == 20)
        #expect(queue.count == 1)
        queue.close()
    }

    @Test("T1: each pass runs a single delivery that takes longer than the time share")
    func longItems() {
        let others = Atomic(0)
        let now = Atomic<Int64>(0)
        let probe = Probe()
        let queue = DeliveryQueue(
            clock: { now.load(ordering: .relaxed) }, wake: {}, wakeAfterOthers: { others.add(1, ordering: .relaxed) })
        for number in 1...3 {
            queue.append {
                now.add(50_000_000, ordering: .relaxed)
                probe.note(number)()
            }
        }
        for turn in 1...3 {
            queue.drain()
            #expect(probe.numbers == Array(1...turn))
        }
        #expect(others.load(ordering: .relaxed) == 2)
    }

    @Test("T2: a delivery larger than the bound is lost itself and displaces no other")
    func largerThanTheBound() {
        let probe = Probe()
        let queue = queue(probe, .init(count: .max, byteCount: 1_000))
        queue.append(byteCount: 900, probe.note(1))
        #expect(queue.append(byteCount: 1_001, probe.note(2)) == 1)
        #expect(queue.append(byteCount: 100, probe.note(3)) == 0)
        queue.drain()
        #expect(probe.numbers == [1, 3])
        #expect(queue.lost == 1)
    }

    @Test("T2: deliveries beyond the bound displace the oldest, which are counted as lost", arguments: [true, false])
    func bounds(byBytes: Bool) {
        let probe = Probe()
        let queue = queue(
            probe, byBytes ? .init(count: .max, byteCount: 1_000) : .init(count: 10, byteCount: .max))
        var lost = 0
        for number in 1...25 { lost += queue.append(byteCount: 100, probe.note(number)) }
        #expect(lost == 15)
        #expect(queue.lost == 15)
        #expect(queue.count == 10)
        queue.drain()
        #expect(probe.numbers == Array(16...25))
    }

    @Test("T2: a closed queue drops and counts waiting and new deliveries, and wakes no target")
    func closed() {
        let probe = Probe()
        let queue = queue(probe)
        queue.append(probe.note(1))
        queue.append(probe.note(2))
        #expect(queue.close() == 2)
        #expect(queue.append(probe.note(3)) == 1)
        #expect(queue.lost == 3)
        queue.drain()
        #expect(probe.numbers == [])
        #expect(probe.wakes.load(ordering: .relaxed) == 1)
    }

    @Test("T1: no delivery is lost when many threads append at once, and the order of each thread is kept")
    func manyThreads() async throws {
        let doorbell = Doorbell()
        let queue = DeliveryQueue { doorbell.ring() }
        let (threads, count) = (4, 5_000)
        let received = (0..<threads).map { _ in Probe() }
        async let consumer: Void = onOwnThread {
            while received.reduce(0, { $0 + $1.numbers.count }) < threads * count {
                try doorbell.wait()
                queue.drain()
            }
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for thread in 0..<threads {
                group.addTask {
                    try await onOwnThread {
                        for number in 0..<count { queue.append(received[thread].note(number)) }
                    }
                }
            }
            try await group.waitForAll()
        }
        try await consumer
        #expect(queue.lost == 0)
        #expect(received.map(\.numbers) == Array(repeating: Array(0..<count), count: threads))
    }
}
