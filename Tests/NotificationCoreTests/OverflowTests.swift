// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// Full queues.
@Suite("Queue overflow", .limited)
struct OverflowTests {
    @Test("S4: a full held queue is delivered to a suspended client that reads, and the client remains suspended")
    func flushOfAFullQueue() throws {
        let center = Scenario([.queuedPerClient: 3])
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post(3, of: "A")
        #expect(center.received(one) == [], "three have room")
        try center.post("A", "4")
        #expect(center.objects(one) == ["1", "2", "3", "4"])
        #expect(center.sequences(one) == [1, 2, 3, 4])
        #expect(center.status(one)?.isSuspended == true)
        #expect(center.statistics.dropped == 0)
        #expect(center.overflows == [:])

        try center.post("A", "5")
        #expect(center.received(one).count == 4, "from now on it is held again")
        try center.resume(one)
        #expect(center.objects(one).last == "5")
    }

    @Test("S4: a held queue is delivered when its bytes come close to the limit")
    func flushByBytes() throws {
        let center = Scenario([.queuedBytesPerClient: 10_000])
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post(2, of: "A", bytes: 3000)
        #expect(center.received(one) == [])
        // With this one less than an eighth is free.
        try center.post("A", "3", bytes: 3000)
        #expect(center.objects(one) == ["1", "2", "3"])
        #expect(center.losses(one) == [])
    }

    @Test("S4: coalescing keeps a held queue within its limit, so that the queue is not flushed")
    func coalescingMakesRoom() throws {
        let center = Scenario([.queuedPerClient: 2])
        try center.observe(one, "", "", .coalesce)
        try center.suspend(one)
        for _ in 1...50 {
            try center.post("A")
            try center.post("B")
        }
        #expect(center.received(one) == [])
        #expect(center.status(one)?.queued == 2)
    }

    @Test("S4: a client that does not read loses its oldest notifications, and Dropped precedes newer ones")
    func dropsOldest() throws {
        let center = Scenario([.queuedPerClient: 3])
        let first = try center.observe(one, "A", "1", .hold)
        let all = try center.observe(one, "A", "", .hold)
        center.stop(one)
        try fill(center, one)
        center.clear()

        try center.post(5, of: "A")
        #expect(center.received(one) == [])
        #expect(center.overflows[one] == [.queueFull], "one log line for one gap")
        #expect(center.status(one)?.queued == 3)
        #expect(center.status(one)?.dropped == 2)
        #expect(center.statistics.dropped == 2)

        center.goOn(one)
        #expect(
            center.happened(one) == [
                .dropped(2, of: [first, all], .queueFull),
                .delivered("A", object: "3", to: [all], sequence: 131),
                .delivered("A", object: "4", to: [all], sequence: 132),
                .delivered("A", object: "5", to: [all], sequence: 133),
            ])
    }

    /// Sends a client that stopped all that it may be sent.
    private func fill(_ center: Scenario, _ client: ClientName) throws {
        let filler = try center.observe(client, "filler")
        for _ in 1...128 { try center.post("filler", immediately: true) }
        #expect(center.received(client).count == 128)
        try center.remove(filler, of: client)
        #expect(center.status(client)?.queued == 0)
    }

    @Test("S4: a suspended client that does not read loses its oldest notifications, and Dropped matches the hole")
    func dropsOldestOfTheSuspended() throws {
        let center = Scenario([.queuedPerClient: 3])
        let observer = try center.observe(one, "A", "", .hold)
        center.stop(one)
        try fill(center, one)
        try center.suspend(one)
        center.clear()
        try center.post(10, of: "A")
        #expect(center.received(one) == [])
        center.goOn(one)
        #expect(
            center.happened(one) == [
                .suspensionChanged(true, .explicit), .dropped(7, of: [observer], .queueFull),
            ], "it is suspended")
        center.clear()
        try center.resume(one)
        #expect(center.objects(one) == ["8", "9", "10"])
        #expect(center.sequences(one) == [136, 137, 138])
    }

    @Test("S4: Dropped names every observer that missed a lost notification")
    func observersOfTheLost() throws {
        let center = Scenario([.queuedPerClient: 1])
        let observers = try ["1", "2", "3", "4"].map { try center.observe(one, "A", $0, .hold) }
        center.stop(one)
        try fill(center, one)
        try center.post(4, of: "A")
        center.clear()
        center.goOn(one)
        #expect(center.happened(one).first == .dropped(3, of: Array(observers[..<3]), .queueFull))
    }

    @Test("E4: an unreported loss names only a bounded number of removed observers")
    func removedObserversOfTheLost() throws {
        let center = Scenario([.queuedPerClient: 1])
        try center.observe(one, "A", "", .hold)
        center.stop(one)
        try fill(center, one)
        try center.post(2, of: "A")
        for round in 1...50 {
            let observers = try (0..<100).map { _ in try center.observe(one, "B", "", .hold) }
            try center.post(2, of: "B")
            if round < 50 { for observer in observers { try center.remove(observer, of: one) } }
        }
        let kept = try #require(center.center.clients[one]?.unreportedLoss)
        #expect(kept.count >= 50 && kept.observers.count <= 300, "\(kept.count), \(kept.observers.count)")
    }

    @Test("S1, S4: a coalescing notification does not count as the replacement of a lost notification")
    func coalescingAfterLoss() throws {
        let center = Scenario([.queuedPerClient: 2])
        try center.observe(one, "", "", .coalesce)
        center.stop(one)
        try fill(center, one)
        try center.suspend(one)
        for name in ["A", "B", "C", "A", "D"] { try center.post(name) }
        #expect(center.statistics.coalesced == 0)
        #expect(center.status(one)?.dropped == 3)
        center.goOn(one)
        center.clear()
        try center.resume(one)
        #expect(center.names(one) == ["A", "D"])
    }

    @Test("S4: each gap is reported by one Dropped signal and logged once")
    func severalGaps() throws {
        let center = Scenario([.queuedPerClient: 2])
        try center.observe(one, "A", "", .hold)
        center.stop(one)
        try fill(center, one)
        center.clear()
        try center.post(3, of: "A")
        center.answer(one)
        #expect(center.losses(one) == [1])
        #expect(center.sequences(one) == [130, 131])
        try center.post(61, of: "A")  // closes the window again: Dropped counts as well
        #expect(center.status(one)?.queued == 0)
        try center.post(5, of: "A")
        center.goOn(one)
        #expect(center.losses(one) == [1, 3])
        #expect(center.overflows[one] == [.queueFull, .queueFull])
        #expect(center.status(one)?.dropped == 4)

        var expected: UInt64 = 128
        for happening in center.happened(one) {
            switch happening {
            case .dropped(let count, _, _): expected += count
            case .delivered(_, _, _, let sequence):
                expected += 1
                #expect(sequence == expected)
            case .suspensionChanged: break
            }
        }
        #expect(expected == 128 + 69, "received and dropped are what was posted")
    }

    @Test("S4: a queue that is full by bytes loses its oldest notifications if the client does not read")
    func dropsByBytes() throws {
        let center = Scenario([.queuedBytesPerClient: 10_000])
        try center.observe(one, "A", "", .hold)
        center.stop(one)
        try fill(center, one)
        center.clear()
        try center.post(5, of: "A", bytes: 3000)
        #expect(center.status(one)?.queued == 3)
        #expect(center.statistics.queuedBytes <= 10_000)
        center.goOn(one)
        #expect(center.losses(one) == [2])
        #expect(center.objects(one) == ["3", "4", "5"])
    }

    @Test("E1: a notification larger than the queue limit is lost if the client does not read")
    func tooLargeForTheQueue() throws {
        let center = Scenario([.queuedBytesPerClient: 1000])
        let observer = try center.observe(one, "A")
        center.stop(one)
        try fill(center, one)
        center.clear()
        try center.post("A", bytes: 5000)
        #expect(center.status(one)?.queued == 0)
        center.goOn(one)
        #expect(center.happened(one) == [.dropped(1, of: [observer], .queueFull)])
        try center.post("A", bytes: 5000)
        #expect(center.sequences(one) == [130])
    }

    @Test("S4: other clients receive everything while one client does not read")
    func othersGoOn() throws {
        let center = Scenario([.queuedPerClient: 3])
        try center.observe(one, "A", "", .hold)
        try center.observe(two, "A", "", .hold)
        center.stop(one)
        try center.post(1000, of: "A")
        #expect(center.objects(two) == (1...1000).map(String.init))
        #expect(center.sequences(two) == Array(1...1000))
        #expect(center.status(one)?.queued == 3)
        #expect(center.status(one)?.dropped == 1000 - 128 - 3)
        #expect(center.status(two)?.dropped == 0)
    }

    @Test("E1: a queue with exactly the limit of bytes loses nothing")
    func exactBytes() throws {
        let center = Scenario([.queuedBytesPerClient: 3000])
        try center.observe(one, "A")
        center.stop(one)
        try fill(center, one)
        for _ in 0..<3 { try center.post("A", bytes: 743) }  // 1000 each
        #expect(center.status(one)?.queued == 3)
        try center.post("A", bytes: 743)
        #expect(center.status(one)?.queued == 3)
        #expect(center.status(one)?.dropped == 1)
    }

    // MARK: All queues together

    @Test("E1: all queues together may have exactly the total of bytes, and lose only the excess")
    func exactTotal() throws {
        let center = Scenario([.queuedBytes: 3000])
        try center.observe(one, "A")
        try center.observe(two, "B")
        for client in [one, two] {
            center.stop(client)
            try fill(center, client)
        }
        for _ in 0..<3 { try center.post("A", bytes: 743) }
        #expect(center.statistics.queuedBytes == 3000 && center.statistics.dropped == 0)
        try center.post("B", bytes: 743)
        #expect(center.status(one)?.queued == 2)
        #expect(center.status(two)?.queued == 1)
    }

    @Test("M6, E1: ready notifications wait in the send schedule until all queues together exceed their limit")
    func turnsWithinTheTotal() throws {
        let center = Scenario([.queuedBytes: 3000])
        try center.observe(one, "A")
        center.isBusy = true
        for _ in 0..<3 { try center.post("A", bytes: 743) }
        #expect(center.received(one).isEmpty)
        try center.post("A", bytes: 743)
        #expect(center.received(one).count == 4)
    }

    @Test("E1: beyond the total limit of all queues, only the largest queue loses notifications")
    func theLargestPays() throws {
        let center = Scenario([.queuedBytes: 30_000])
        try center.observe(one, "A", "", .hold)
        try center.observe(two, "B", "", .hold)
        for client in [one, two] {
            center.stop(client)
            try fill(center, client)
        }
        center.clear()
        try center.post(2, of: "A", bytes: 4000)
        try center.post(7, of: "B", bytes: 4000)
        #expect(center.statistics.queuedBytes <= 30_000)
        #expect(center.status(one)?.queued == 2)
        #expect(center.status(two)?.queued == 5)
        // Also when it is the other that grows.
        try center.post("A", "3", bytes: 4000)
        #expect(center.status(one)?.queued == 3)
        #expect(center.status(two)?.queued == 4)
        #expect(center.overflows == [two: [.totalQueueFull]])
        for client in [one, two] { center.goOn(client) }
        #expect(center.losses(one) == [])
        #expect(center.losses(two) == [3])
        #expect(center.objects(two) == ["4", "5", "6", "7"])
    }

    @Test("S4: beyond the total limit, the largest queue is delivered without loss if its suspended client reads")
    func theLargestReads() throws {
        let center = Scenario([.queuedBytes: 28_000])
        try center.observe(one, "A", "", .hold)
        try center.observe(two, "B", "", .hold)
        for client in [one, two] { try center.suspend(client) }
        try center.post(4, of: "A", bytes: 4000)
        try center.post(2, of: "B", bytes: 4000)
        #expect(center.received(one) == [])
        try center.post("B", "3", bytes: 4000)
        #expect(center.objects(one) == ["1", "2", "3", "4"])
        #expect(center.received(two) == [])
        #expect(center.status(one)?.isSuspended == true)
        #expect(center.statistics.dropped == 0)
        #expect(center.statistics.queued == 3)
    }

    @Test("S4: under a lowered total limit, only the client whose queue grows loses notifications")
    func loweredLimit() throws {
        let center = Scenario([.queuedBytes: 30_000])
        for (client, name) in [(one, "A"), (two, "B"), (three, "C")] {
            try center.observe(client, name, "", .hold)
            center.stop(client)
            try fill(center, client)
        }
        try center.post("A", bytes: 4000)
        try center.post("B", bytes: 4000)
        center.center.limits[.queuedBytes] = 5000
        // The largest pays. With that nothing of the client is left, and what waits for the others is not its doing.
        try center.post("C", bytes: 6000)
        #expect([one, two, three].map { center.status($0)?.queued } == [1, 1, 0])
        #expect([one, two, three].map { center.status($0)?.dropped } == [0, 0, 1])
        // They pay as soon as one of them grows.
        try center.post("B", "2", bytes: 10)
        #expect([one, two, three].map { center.status($0)?.queued } == [1, 1, 0])
        #expect([one, two, three].map { center.status($0)?.dropped } == [0, 1, 1])
    }

    @Test("E8: after a limit is lowered, each post removes at most 16,384 notifications of a client's queue")
    func loweredLimitInParts() throws {
        let center = Scenario()
        try center.observe(one, "A", "", .hold)
        center.stop(one)
        try center.suspend(one)
        func fillAtOnce() throws {
            let nothing = Scenario.Payload(byteCount: 0, tag: 0)
            try center.perform { effects throws(CenterError) in
                for _ in 0..<17_000 {
                    _ = try center.center.post(
                        name: "A", object: "", userInfo: nothing, options: PostOptions(), from: ":1.0",
                        effects: &effects)
                }
            }
        }
        try fillAtOnce()
        center.center.limits[.queuedPerClient] = 10
        try center.post("A")
        #expect(center.status(one)?.dropped == 16_384)
        try center.post("A")
        #expect(center.status(one)?.queued == 10)
        center.center.limits[.queuedPerClient] = 100_000
        try fillAtOnce()
        center.center.limits[.queuedBytes] = 1
        let dropped = try #require(center.status(one)?.dropped)
        try center.post("A")
        #expect(center.status(one)?.dropped == dropped + 16_384)
        try center.post("A")
        #expect(center.status(one)?.queued == 0)
    }

    @Test(
        "E1: among equally large queues, the choice of the queues that lose notifications is deterministic",
        arguments: 0..<8)
    func ties(_ run: Int) throws {
        let center = Scenario([.queuedBytes: 10_000])
        let clients = (1...6).map { client(10 * run + $0) }
        for client in clients {
            try center.observe(client, "A", "", .hold)
            center.stop(client)
            try fill(center, client)
        }
        try center.post("A", bytes: 1400)
        #expect(clients.map { center.status($0)?.queued } == [1, 1, 1, 1, 1, 1])
        center.center.limits[.queuedBytes] = 6000
        try center.post("A", bytes: 10)
        #expect(clients.map { center.status($0)?.dropped } == [1, 1, 1, 1, 0, 0])
    }
}
