// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonThreadDelivery
import Testing

@Suite("T1, T2: delivery to asynchronous functions of observers", .limited)
struct AsyncDeliveryTests {
    private final class Numbers: Sendable {
        private let numbers = Locked<[Int]>([])

        func add(_ number: Int) { numbers.withLock { $0.append(number) } }
        var all: [Int] { numbers.withLock { $0 } }
    }

    private let ran = Numbers()
    // No clock: a task needs a thread of the pool, which other tests may hold for minutes.
    private let gate = Gate()
    private let begun = Gate()
    private let firstDone = Gate()
    private let lastDone = Gate()

    /// One that is taken, and waits until the gate is opened: what comes now waits.
    private func standing(_ limits: DeliveryQueue.Limits = .standard) async -> AsyncDelivery {
        let delivery = AsyncDelivery(limits)
        let lost = delivery.append(byteCount: 1) { [ran, gate, begun, firstDone] in
            begun.open()
            await gate.pass()
            ran.add(0)
            firstDone.open()
        }
        #expect(lost == 0)
        await begun.pass()
        return delivery
    }

    @Test("T1: asynchronous deliveries run one after the other, in order, even if they suspend")
    func order() async {
        let delivery = AsyncDelivery()
        for number in 0..<1_000 {
            let lost = delivery.append(byteCount: 1) { [ran, lastDone] in
                ran.add(number)
                await Task.yield()
                ran.add(-number)
                if number == 999 { lastDone.open() }
            }
            #expect(lost == 0)
        }
        await lastDone.pass()
        #expect(ran.all == (0..<1_000).flatMap { [$0, -$0] })
    }

    @Test("T2: deliveries beyond the bound displace the oldest, which are counted as lost", arguments: [true, false])
    func bounds(byBytes: Bool) async {
        let delivery = await standing(
            byBytes ? .init(count: .max, byteCount: 1_000) : .init(count: 10, byteCount: .max))
        var lost = 0
        for number in 1...25 {
            lost += delivery.append(byteCount: 100) { [ran, lastDone] in
                ran.add(number)
                if number == 25 { lastDone.open() }
            }
        }
        #expect(lost == 15 && delivery.count == 10)
        gate.open()
        await lastDone.pass()
        #expect(ran.all == [0] + Array(16...25))
    }

    @Test("Waiting deliveries end with the observer; a running one finishes, and none counts as lost")
    func ended() async {
        let delivery = await standing()
        var lost = 0
        for number in 1...3 { lost += delivery.append(byteCount: 1) { [ran] in ran.add(number) } }
        delivery.end()
        #expect(delivery.count == 0)
        lost += delivery.append(byteCount: 1) { [ran] in ran.add(4) }
        #expect(lost == 0)
        gate.open()
        await firstDone.pass()
        #expect(ran.all == [0])
    }

    @Test("A dropped delivery is released without a lock, and may use the queue")
    func dropped() async {
        final class Mark: Sendable {
            let atEnd: @Sendable () -> Void
            init(_ atEnd: @escaping @Sendable () -> Void) { self.atEnd = atEnd }
            deinit { atEnd() }
            func touch() {}
        }
        let delivery = await standing(.init(count: 1, byteCount: .max))
        let counts = Numbers()
        for _ in 0..<2 {
            let mark = Mark { counts.add(delivery.count) }
            _ = delivery.append(byteCount: 1) { mark.touch() }
        }
        #expect(counts.all == [1])
        delivery.end()
        #expect(counts.all == [1, 0])
        gate.open()
    }
}
