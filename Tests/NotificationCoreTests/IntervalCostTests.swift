// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// Minimum intervals of many observers and names: what they cost, and who pays.
@Suite("E4, E8, R5: the cost of minimum intervals", .limited)
struct IntervalCostTests {
    private func scenario(_ limits: [Limits.Key: UInt64] = [:]) -> Scenario {
        let center = Scenario(limits)
        center.center.remembersChanges = true
        return center
    }

    @Test("E4: the state of intervals counts at its size, and is freed with its client")
    func counted() throws {
        let center = scenario()
        for _ in 0..<100 { try center.observe(one, interval: .max) }
        #expect(center.statistics.intervalBytes == 0)
        for number in 0..<50 { try center.post("A", "\(number)") }
        // Each observer for each notification.
        let known = center.statistics.intervalBytes
        #expect(known > 100 * 50 * 24 && center.statistics.queuedBytes == 0)
        for number in 0..<50 { try center.post("A", "\(number)") }
        #expect(center.statistics.queued == 50 && center.statistics.intervalBytes == known)
        try center.center.checkInvariants()
        center.disappear(one)
        #expect(center.statistics.intervalBytes == 0 && center.statistics.queued == 0)
    }

    @Test("E4: throttled notifications count once per observer; the excess is sent early, or lost if unread")
    func manyWait() throws {
        for reads in [true, false] {
            let center = scenario([.queuedPerClient: 1000])
            for _ in 0..<100 { try center.observe(one, "A", interval: .max) }
            for number in 0..<20 { try center.post("A", "\(number)") }
            if !reads {
                try center.observe(one, "Fill")
                center.stop(one)
                try center.post(128, of: "Fill")
            }
            for number in 0..<20 { try center.post("A", "\(number)") }
            center.wait(10)
            let losses = center.statistics.dropped
            if reads {
                #expect(losses == 0 && center.received(one).count > 20)
            } else {
                #expect(losses == 10 && center.statistics.queued >= 10, "\(losses)")
                center.goOn(one)
                #expect(center.losses(one).reduce(0, +) == losses)
            }
            try center.center.checkInvariants()
        }
    }

    @Test("E4: intervals without waiting notifications are forgotten first when a queue has no space")
    func idleGoesFirst() throws {
        let center = scenario([.queuedBytesPerClient: 40_000])
        try center.observe(one, "A", interval: .max)
        try center.observe(one, "B", "", .hold)
        for number in 0..<100 { try center.post("A", "\(number)") }
        let known = center.statistics.intervalBytes
        #expect(known > 20_000)
        center.stop(one)
        while center.statistics.intervalBytes == known { try center.post("B", bytes: 500) }
        #expect(center.statistics.intervalBytes == 0 && center.statistics.dropped == 0)
        try center.center.checkInvariants()
    }

    @Test("A busy name does not displace the interval of a rarely posted name")
    func quiet() throws {
        let center = scenario()
        center.center.checksInvariants = false
        try center.observe(one, "Quiet", interval: .max)
        try center.observe(one, "Busy", interval: 1)
        try center.post("Quiet")
        for _ in 0..<3000 {
            for _ in 0..<2 { try center.post("Busy") }
            center.wait(2)
        }
        try center.post("Quiet")
        #expect(center.received(one).count(where: { $0.name == "Quiet" }) == 1 && center.statistics.queued == 1)
        try center.center.checkInvariants()
    }

    @Test("D8: an observer removed from many throttled notifications receives none of them", arguments: [1, 20])
    func removedFromMuch(count: Int) throws {
        let center = scenario()
        center.center.checksInvariants = false
        var ids: [ObserverID] = []
        for _ in 0..<400 { ids.append(try center.observe(one, "A", interval: 1000)) }
        for _ in 0..<2 { for number in 0..<50 { try center.post("A", "\(number)") } }
        for id in ids.prefix(count) { try center.remove(id, of: one) }
        try center.center.checkInvariants()
        let before = center.received(one).count
        for number in 0..<50 { try center.post("A", "\(number)") }
        center.wait(2000)
        let last = center.received(one).dropFirst(before)
        #expect(last.count == 50 && last.allSatisfy { $0.observers == Array(ids.dropFirst(count)) })
        #expect(center.removeAll(of: one) == 400 - count && center.statistics.intervalBytes == 0)
        try center.center.checkInvariants()
    }

    @Test("E8, M6: due throttled notifications beyond a slice of 64 are sent later, and not by the next event")
    func slices() throws {
        let center = scenario()
        try center.observe(one, "A", interval: 1000)
        for _ in 0..<2 { for number in 0..<200 { try center.post("A", "\(number)") } }
        center.seconds += 2
        func look() -> Int {
            let before = center.received(one).count
            var effects: [Effect] = []
            center.center.intervalTimerEnded(one, effects: &effects)
            return effects.count { if case .deliver = $0 { true } else { false } }
                + center.received(one).count - before
        }
        #expect(look() == 64)
        #expect(look() == 0)
        center.wait(10)
        #expect(center.statistics.queued == 0)
    }

    @Test("E8: removal and suspension with many observers and throttled notifications take bounded steps")
    func steps() throws {
        let center = scenario()
        center.center.checksInvariants = false
        var ids: [ObserverID] = []
        for _ in 0..<100 { ids.append(try center.observe(one, interval: 1000)) }
        for _ in 0..<2 { for number in 0..<150 { try center.post("A", "\(number)") } }
        #expect(center.statistics.queued == 150)
        var most = 0
        center.center.meter.eventEnded = { most = max(most, $1) }
        try center.remove(ids[7], of: one)
        #expect(most < 40_000, "\(most) steps: not all that waits is gone through at once")
        most = 0
        try center.suspend(one)
        try center.resume(one)
        #expect(most < 40_000, "\(most) steps")
        center.center.meter.eventEnded = nil
        center.wait(30_000)
        // Each came at the beginning and once more, for all but the one that is gone.
        let last = center.received(one).dropFirst(150)
        #expect(Set(last.map(\.object)).count == 150)
        #expect(last.allSatisfy { !$0.observers.contains(ids[7]) } && center.statistics.queued == 0)
        try center.center.checkInvariants()
    }
}
