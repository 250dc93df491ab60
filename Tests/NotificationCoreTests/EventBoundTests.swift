// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// What concerns much at once is done in parts: no event goes through all of it.
@Suite("E8: bounded steps of each event", .limited, .enabled(if: StepMeter.isCounting))
struct EventBoundTests {
    private func scenario(_ limits: [Limits.Key: UInt64] = [:]) -> Scenario {
        let center = Scenario(limits)
        center.center.remembersChanges = true
        center.center.checksInvariants = false
        return center
    }

    /// The most steps of the events of `body`.
    private func steps(of center: Scenario, _ body: () throws -> Void) rethrows -> Int {
        var most = 0
        center.center.meter.eventEnded = { most = max(most, $1) }
        defer { center.center.meter.eventEnded = nil }
        try body()
        return most
    }

    @Test("R5: a resume begins the interval of a key once, independent of the number of held notifications")
    func intervalsOfHeld() throws {
        let center = scenario()
        for _ in 0..<2000 { try center.observe(one, "A", "", .drop, interval: .max) }
        let held = try center.observe(one, "A", "", .hold, interval: 1000)
        try center.post("A")
        try center.suspend(one)
        for _ in 0..<2000 { try center.post("A") }
        let most = try steps(of: center) { try center.resume(one) }
        #expect(most < 50_000, "\(most) steps")
        #expect(center.received(one).suffix(2000).allSatisfy { $0.observers == [held] })
        try center.post("A")
        #expect(center.received(one).count == 2001, "its interval has begun")
        try center.center.checkInvariants()
    }

    @Test("R2, R5: a retained value for 4,000 observers with intervals takes bounded steps")
    func owedWithIntervals() throws {
        let center = scenario()
        try center.post("V", retention: Retention())
        try center.suspend(one)
        for _ in 0..<4000 { try center.observe(one, "V", "", .hold, retained: true, interval: .max) }
        let most = try steps(of: center) { try center.resume(one) }
        #expect(most < 50_000, "\(most) steps")
        #expect(center.received(one).count == 4000)
        let waiting = try steps(of: center) { try center.post("V") }
        #expect(waiting < 50_000 && center.received(one).count == 4000, "\(waiting) steps")
        try center.center.checkInvariants()
    }

    @Test("E4: a large post to many clients removes the excess in later slices, and every removal is a counted loss")
    func roomForMany() throws {
        let center = scenario([.queuedBytes: 20 << 20, .userInfoBytes: 1 << 20])
        let receivers = (10..<30).map { client($0) }
        for receiver in [two] + receivers { try center.observe(receiver, receiver == two ? "Small" : "Large") }
        for receiver in [two] + receivers { center.stop(receiver) }
        for name in ["Small", "Large"] { try center.post(200, of: name) }
        for number in 0..<40_000 { try center.post("Small", "\(number)") }
        let before = center.statistics
        #expect(before.queued > 30_000 && before.dropped == 0)
        try center.post("Large", bytes: 1 << 20)
        let lost = center.statistics.dropped
        #expect(lost <= UInt64(SpentInEvent.maxLosses) + 1, "\(lost)")
        #expect(center.center.isOverMemory)
        for _ in 0..<1000 where center.center.isOverMemory {
            center.perform { effects in center.center.reclaimMemory(effects: &effects) }
        }
        #expect(!center.center.isOverMemory && center.statistics.queuedBytes <= 20 << 20)
        let after = center.statistics
        #expect(after.dropped + after.queued == before.queued + 20, "each is lost with a word, or waits")
        try center.center.checkInvariants()
    }

    @Test("R1: expired values are removed in slices, and no observer receives one")
    func expiredValues() throws {
        let center = scenario()
        for number in 0..<6000 {
            let poster = client(10 + number / 1000)
            try center.post("V", "\(number)", retention: Retention(), expiresAfter: 10, from: poster)
        }
        try center.post("W", retention: Retention())
        try center.suspend(one)
        for _ in 0..<200 { try center.observe(one, "", "", .hold, retained: true) }
        center.seconds += 11
        let most = try steps(of: center) { try center.resume(one) }
        #expect(most < 20_000, "\(most) steps")
        #expect(center.received(one).map(\.name) == Array(repeating: "W", count: 200))
        #expect(center.statistics.expired == 6000 && center.statistics.retained == 1)
        try center.center.checkInvariants()
    }

    @Test("R1: expired values for several clients are removed in slices while a call waits for all due notifications")
    func expiredValuesOfSeveral() throws {
        let center = scenario()
        let receivers = (100..<103).map { client($0) }
        for receiver in receivers {
            try center.observe(receiver, "Q")
            center.stop(receiver)
        }
        try center.post(200, of: "Q")
        for number in 0..<18_000 {
            let poster = client(10 + number / 3000)
            try center.post("V", "\(number)", retention: Retention(), expiresAfter: 10, from: poster)
        }
        try center.post("W", retention: Retention())
        for receiver in receivers { try center.observe(receiver, "", "", .hold, retained: true) }
        center.seconds += 11
        center.isBusy = true
        for receiver in receivers { center.goOn(receiver) }
        center.isBusy = false
        let most = try steps(of: center) {
            try center.observe(two, "X")
            for _ in 0..<100 { center.send() }
        }
        #expect(most < 10_000, "\(most) steps")
        let names = receivers.map { center.received($0).map(\.name).filter { $0 != "Q" } }
        #expect(names.allSatisfy { $0 == ["W"] }, "\(names.map(\.count))")
        #expect(center.statistics.expired == 18_000)
        try center.center.checkInvariants()
    }

    @Test("R1: expired held notifications are removed in slices")
    func expiredHeld() throws {
        let center = scenario()
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        for number in 0..<30_000 { try center.post("A", "\(number)", expiresAfter: 10) }
        try center.post("A", "last")
        center.seconds += 11
        var events = 0
        let most = try steps(of: center) {
            try center.resume(one)
            while center.statistics.queued > 0, events < 100 {
                events += 1
                center.postQueued(.now)
            }
        }
        #expect(most < 20_000, "\(most) steps")
        #expect(center.received(one).map(\.object) == ["last"] && center.statistics.expired == 30_000)
        #expect(center.sequences(one) == [1] && center.losses(one) == [])
        try center.center.checkInvariants()
    }

    @Test("E3: the last event of a service sends all due notifications behind any number of expired ones")
    func lastEvent() throws {
        let center = scenario()
        for receiver in [one, two] {
            try center.observe(receiver, "A")
            center.stop(receiver)
        }
        for number in 0..<12_000 { try center.post("A", "\(number)", expiresAfter: 10) }
        for receiver in [one, two] { try center.post("A", "last of \(receiver)") }
        center.seconds += 11
        center.isBusy = true
        for receiver in [one, two] { center.goOn(receiver) }
        center.perform { effects in center.center.sendAllReady(isLast: true, effects: &effects) }
        for receiver in [one, two] {
            #expect(center.received(receiver).map(\.object).filter { $0.hasPrefix("last") }.count == 2)
        }
        #expect(center.losses(one) == [] && center.losses(two) == [])
        try center.center.checkInvariants()
    }

    @Test("S4, R1: expired notifications make space for newer ones, so that a client that reads loses none")
    func expiredInTheWay() throws {
        let center = scenario([.queuedPerClient: 20_000])
        try center.observe(one, "A")
        center.stop(one)
        let before = center.received(one).count
        for number in 0..<19_000 { try center.post("A", "\(number)", expiresAfter: 10) }
        center.seconds += 11
        center.isBusy = true
        center.goOn(one)
        let most = try steps(of: center) {
            for number in 0..<2000 { try center.post("A", "new \(number)") }
        }
        #expect(most < 20_000, "\(most) steps")
        center.isBusy = false
        for _ in 0..<10 { center.send() }
        let new = center.received(one).map(\.object).filter { $0.hasPrefix("new") }
        #expect(new == (0..<2000).map { "new \($0)" }, "\(before), \(new.count)")
        #expect(center.losses(one) == [])
        try center.center.checkInvariants()
    }

    @Test(
        "R2: notifications that wait behind a retained replay are sent when the observers of the replay are removed",
        arguments: [false, true])
    func owedNoMore(isRevoked: Bool) throws {
        let center = scenario()
        try center.post("V", retention: Retention())
        try center.observe(one, "X", "", .hold)
        try center.suspend(one)
        var replays: Set<ObserverID> = []
        for _ in 0..<1000 { replays.insert(try center.observe(one, "N", "", .hold, retained: true)) }
        center.isBusy = true
        try center.resume(one)
        try center.post("X", "waiting")
        center.perform { effects in center.center.sendAllReady(effects: &effects) }
        try center.center.checkInvariants()
        #expect(center.received(one) == [])
        if isRevoked { center.revoke(replays, of: one) } else { _ = center.removeAll(of: one, name: "N") }
        try center.center.checkInvariants()
        center.isBusy = false
        center.send()
        #expect(center.received(one).map(\.object) == ["waiting"])
    }

    @Test("E3: the last event of a service sends notifications that wait for retained values")
    func lastBehindValues() throws {
        let center = scenario()
        try center.post("V", retention: Retention())
        try center.observe(one, "X", "", .hold)
        try center.suspend(one)
        for _ in 0..<1000 { try center.observe(one, "N", "", .hold, retained: true) }
        center.isBusy = true
        try center.resume(one)
        try center.post("X", "last")
        center.perform { effects in center.center.sendAllReady(isLast: true, effects: &effects) }
        #expect(center.received(one).map(\.object) == ["last"])
    }

    @Test("S3, D4: a throttled notification does not overtake held notifications that could not be sent yet")
    func intervalBehindHeld() throws {
        let center = scenario([.queuedPerClient: 20_000])
        try center.observe(one, "A", "", .deliverImmediately, interval: 20_000)
        try center.observe(one, "B", "", .hold)
        try center.post("A")
        try center.suspend(one)
        for number in 0..<9000 { try center.post("B", "\(number)", expiresAfter: 10) }
        try center.post("B", "held")
        try center.post("A")
        center.isBusy = true
        center.wait(30_000)
        center.isBusy = false
        for _ in 0..<5 {
            center.send()
            center.wait(1000)
        }
        #expect(center.received(one).map { $0.name + $0.object } == ["A", "Bheld", "A"])
        #expect(center.losses(one) == [])
        try center.center.checkInvariants()
    }

    @Test(
        "E8: no empty delivery is sent when notifications expire between two readings of the clock",
        arguments: [1, 7, 40, 333])
    func clockGoesOn(step: Int64) throws {
        let center = scenario()
        var (now, looks): (Int64, Int64) = (1_000_000_000, 0)
        center.center.clock = Clock(
            time: { 0 },
            uptime: {
                looks += 1
                return now + looks * step * 1000
            })
        try center.setOptions(ClientOptionsChange(batches: true), of: one)
        for client in [one, two] {
            try center.observe(client, "A", "", .hold, retained: true)
            try center.observe(client, "B", "", .deliverImmediately, interval: 1)
        }
        for round in 0..<60 {
            for receiver in [one, two] {
                if round % 2 == 0 { try center.suspend(receiver) } else { center.stop(receiver) }
            }
            for number in 0..<40 {
                let isValue = number % 5 == 0
                try center.post(
                    number % 3 == 0 ? "B" : "A", "\(number)", immediately: number % 11 == 0,
                    retention: isValue ? Retention() : nil, expiresAfter: UInt32(1 + number % 4))
                now += Int64(number * round % 17) * 10_000
            }
            for receiver in [one, two] {
                if round % 2 == 0 { try center.resume(receiver) } else { center.goOn(receiver) }
                try center.observe(receiver, "A", "\(round)", .hold, retained: true)
            }
        }
        try center.center.checkInvariants()
    }

    @Test("D8: removal of many observers, and of a few with intervals among many, takes bounded steps")
    func listsOfFew() throws {
        let center = scenario()
        try center.observe(one, "A", "", .hold)
        try center.observe(one, "B", "", .hold)
        for _ in 0..<4000 { try center.observe(one, "C", "", .hold) }
        try center.observe(one, "", "", .hold)
        try center.suspend(one)
        for number in 0..<1000 { try center.post(number % 2 == 0 ? "A" : "B") }
        let most = steps(of: center) { #expect(center.removeAll(of: one, name: "C") == 4000) }
        #expect(most < 80_000, "\(most) steps")

        for _ in 0..<300 { try center.observe(two, "A", "", .drop, interval: .max) }
        for _ in 0..<5000 { try center.observe(two, "", "", .drop, interval: .max) }
        for round in 0..<2 {
            for object in ["a", "b", "c", "d", "e"] { try center.post("A", "\(object)", bytes: round) }
        }
        let few = steps(of: center) { #expect(center.removeAll(of: two, name: "A") == 300) }
        #expect(few < 80_000, "\(few) steps")
        try center.center.checkInvariants()
    }

    @Test("R5: a resume takes bounded steps even if no observer of the held notifications has an interval")
    func intervalsOfOthers() throws {
        let center = scenario()
        for _ in 0..<8 { try center.observe(one, "X", "", .drop, interval: .max) }
        for _ in 0..<4000 { try center.observe(one, "A", "", .hold) }
        try center.suspend(one)
        for _ in 0..<300 { try center.post("A") }
        let most = try steps(of: center) { try center.resume(one) }
        #expect(most < 250_000, "\(most) steps")
    }

    @Test("D8: removal of a few observers does not search the lists of other observers", arguments: [true, false])
    func listsOfOthers(reads: Bool) throws {
        let center = scenario()
        for name in ["A", "B"] { for _ in 0..<1000 { try center.observe(one, name, "", .hold) } }
        if reads { try center.suspend(one) } else { center.stop(one) }
        for number in 0..<400 { try center.post(number % 2 == 0 ? "A" : "B") }
        for _ in 0..<9 { try center.observe(one, "C", "", .hold) }
        let most = steps(of: center) { #expect(center.removeAll(of: one, name: "C") == 9) }
        #expect(most < 10_000, "\(most) steps")
        #expect(center.status(one)?.observers == 2000)
        try center.center.checkInvariants()
    }

    @Test("S2: a flush to many suspended clients is done in slices")
    func flushedToMany() throws {
        let center = scenario()
        let receivers = (10..<110).map { client($0) }
        for receiver in receivers {
            try center.observe(receiver, "A", "", .hold)
            try center.suspend(receiver)
        }
        try center.post(40, of: "A")
        center.isBusy = true
        try center.post("A", "now", immediately: true)
        let atOnce = receivers.reduce(0) { $0 + center.received($1).count }
        #expect(atOnce >= SpentInEvent.maxFlushed && atOnce < SpentInEvent.maxFlushed + 128, "\(atOnce)")
        center.isBusy = false
        center.send()
        for receiver in receivers {
            #expect(center.received(receiver).map(\.object) == (1...40).map(String.init) + ["now"])
        }
        try center.center.checkInvariants()
    }

    @Test("D8: a client that has left does not count as a receiver while its state is removed in slices")
    func leaving() throws {
        let center = scenario()
        try center.observe(one, "A", "", .hold)
        try center.observe(two, "A")
        try center.suspend(one)
        center.center.noteLeft(one)
        #expect(try center.post("A") == 1)
        try center.lose(3, "A")
        #expect(center.statistics.dropped == 3, "those of the other")
        center.disappear(one)
        try center.center.checkInvariants()
    }

    @Test("E3: an unreported loss is counted once, also by the center of the next connection")
    func droppedOnce() throws {
        let center = scenario([.queuedPerClient: 10])
        try center.observe(one, "A")
        center.stop(one)
        try center.post(200, of: "A")
        let before = center.status(one)!.dropped
        #expect(before > 0)
        var effects: [Effect] = []
        center.center.connectionEnded(effects: &effects)
        let next = DistributedCenter()
        next.takeOver(center.center)
        #expect(next.clientStatuses.first { $0.name == one }?.dropped == before)
        try next.checkInvariants()
    }

    @Test("E4: the held queue frees the space of removed notifications while others remain")
    func heldShrinks() throws {
        let center = scenario()
        let most = try center.observe(one, "", "", .coalesce)
        let some = try center.observe(one, "Z", "", .hold)
        try center.suspend(one)
        for number in 0..<5000 { try center.post(number % 500 == 0 ? "Z" : "A", "\(number)") }
        #expect(center.center.clients[one]!.queue.heldPlaces == 5000)
        try center.remove(most, of: one)
        #expect(center.center.clients[one]!.queue.heldPlaces == 10)
        try center.center.checkInvariants()
        try center.post("Z", "more")
        try center.resume(one)
        #expect(center.received(one).map(\.object) == (0..<10).map { "\($0 * 500)" } + ["more"])
        #expect(center.received(one).allSatisfy { $0.observers == [some] })
    }

    @Test("E4: posting queues free the space of withdrawn posts, and the remaining posts still coalesce")
    func queueShrinks() throws {
        let center = scenario()
        try center.observe(two, "")
        let kept = (0..<10).map { $0 * 500 }
        for number in 0..<5000 {
            let style: PostingStyle = number % 3 == 0 ? .atExit : .whenIdle
            try center.post("A\(number)", kept.contains(number) ? "y" : "x", style: style)
        }
        for _ in 0..<100 { _ = center.withdraw("", "x") }
        #expect(center.statistics.queuedPosts == 10)
        #expect(center.center.postingQueues.capacity == 10)
        try center.center.checkInvariants()
        try center.post("A500", "y", style: .whenIdle, coalescing: [.name, .object])
        #expect(center.statistics.queuedPosts == 10)
        center.disappear(":1.0")
        for style in [PostingStyle.asap, .whenIdle] { center.postQueued(style) }
        #expect(Set(center.received(two).map(\.name)) == Set(kept.map { "A\($0)" }))
        try center.center.checkInvariants()
    }
}
