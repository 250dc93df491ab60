// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Posters that are faster than observers who read (`docs/flow-control.md`).
@Suite("E4: backpressure", .limited)
struct BackpressureTests {
    @Test("E4: backpressure begins when the queue of a client that reads is over half full, and ends at three eighths")
    func halfFull() throws {
        let center = Scenario([.queuedPerClient: 800])
        try center.observe(one, "A")
        center.stop(one)
        try center.post(128 + 400, of: "A")  // two windows are on their way
        #expect(!center.center.isUnderBackpressure)
        try center.post(1, of: "A")
        #expect(center.center.isUnderBackpressure)
        #expect(center.center.checkBackpressure() == 0)
        center.answer(one)
        #expect(center.center.checkBackpressure() == 64, "as many as it was sent since")
        #expect(center.center.isUnderBackpressure)
        center.answer(one)
        #expect(center.center.checkBackpressure() == 0)
        #expect(!center.center.isUnderBackpressure)
    }

    @Test("E4: a slow consumer causes no backpressure after 100 checks without reading, until it reads again")
    func stalled() throws {
        let center = Scenario([.queuedPerClient: 800])
        try center.observe(one, "A")
        center.stop(one)
        try center.post(600, of: "A")
        for _ in 0..<100 {
            #expect(center.center.isUnderBackpressure)
            _ = center.center.checkBackpressure()
        }
        #expect(!center.center.isUnderBackpressure)
        try center.post(1000, of: "A")
        #expect(!center.center.isUnderBackpressure)
        center.answer(one)
        try center.post(1, of: "A")
        #expect(center.center.isUnderBackpressure)
    }

    @Test("E4: an answer to a probe from before the first notification does not count as reading")
    func answersWithoutReading() throws {
        let center = Scenario([.queuedPerClient: 800])
        center.stop(one)
        try center.observe(one, "A")
        try center.post(600, of: "A")
        for _ in 0..<100 { _ = center.center.checkBackpressure() }
        #expect(!center.center.isUnderBackpressure)
        center.answer(one)
        try center.post(1, of: "A")
        #expect(!center.center.isUnderBackpressure)
        center.answer(one)
        try center.post(1, of: "A")
        #expect(center.center.isUnderBackpressure)
    }

    @Test("E4: backpressure begins when a queue is over half full by bytes, and not before")
    func halfFullByBytes() throws {
        let center = Scenario([.queuedBytesPerClient: 800_000])
        try center.observe(one, "A")
        center.stop(one)
        // Each counts 10,000. Seven fill a window, and two of these are on their way.
        for _ in 0..<14 + 40 { try center.post("A", bytes: 9743) }
        #expect(center.statistics.queuedBytes == 400_000)
        #expect(!center.center.isUnderBackpressure)
        try center.post("A", bytes: 9743)
        #expect(center.center.isUnderBackpressure)
    }

    @Test(
        "E4: backpressure also begins at half of the total queue limit, if a reading client has a large part of it"
    )
    func halfOfAll() throws {
        let center = Scenario([.queuedBytes: 800_000])
        let clients = [one, two, three]
        for client in clients {
            try center.observe(client, "A")
            center.stop(client)
        }
        // Each counts 10,000 for each client. Fourteen are on their way.
        for _ in 0..<14 + 13 { try center.post("A", bytes: 9743) }
        #expect(center.statistics.queuedBytes == 390_000 && !center.center.isUnderBackpressure)
        try center.post("A", bytes: 9743)
        #expect(center.center.isUnderBackpressure)
        // One of which little waits slows nothing.
        for _ in 0..<100 { _ = center.center.checkBackpressure() }
        #expect(!center.center.isUnderBackpressure)
        let other: ClientName = ":1.77"
        try center.observe(other, "B")
        center.stop(other)
        for _ in 0..<14 { try center.post("B", bytes: 9743) }
        // While one waited for its turn it was a good part.
        _ = center.center.checkBackpressure()
        try center.post("B", bytes: 5000)
        #expect(center.status(other)?.queued == 1 && !center.center.isUnderBackpressure)
    }

    @Test("E4: each backpressure check reports the messages sent since the last check to the slowest client")
    func pace() throws {
        let center = Scenario([.queuedPerClient: 1600])
        for client in [one, two] {
            try center.observe(client, "A")
            center.stop(client)
        }
        try center.post(128 + 900, of: "A")
        center.answer(one)
        #expect(center.center.checkBackpressure() == 0, "the other was sent nothing")
        center.answer(one)
        center.answer(two)
        center.answer(two)
        #expect(center.center.checkBackpressure() == 64)
        #expect(center.center.checkBackpressure() == 0)
        #expect(center.center.isUnderBackpressure)
    }

    @Test("E4: backpressure begins again when a queue that was read is half full again")
    func again() throws {
        let center = Scenario([.queuedPerClient: 800])
        try center.observe(one, "A")
        center.stop(one)
        try center.post(128 + 401, of: "A")
        for _ in 0..<2 { center.answer(one) }
        _ = center.center.checkBackpressure()
        #expect(!center.center.isUnderBackpressure)
        try center.post(200, of: "A")
        #expect(center.center.isUnderBackpressure)
    }

    @Test("E4: a client that has read causes backpressure for a hundred more checks, and no longer")
    func stalledLater() throws {
        let center = Scenario([.queuedPerClient: 1600])
        try center.observe(one, "A")
        center.stop(one)
        try center.post(128 + 801, of: "A")
        for _ in 0..<60 { _ = center.center.checkBackpressure() }
        center.answer(one)
        #expect(center.center.checkBackpressure() == 64)
        for _ in 0..<99 { _ = center.center.checkBackpressure() }
        #expect(center.center.isUnderBackpressure)
        _ = center.center.checkBackpressure()
        #expect(!center.center.isUnderBackpressure)
    }

    @Test("E4: neither held notifications of a suspended client nor a client that left causes backpressure")
    func suspended() throws {
        let center = Scenario([.queuedPerClient: 800])
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post(700, of: "A")
        #expect(!center.center.isUnderBackpressure)
        try center.observe(two, "B")
        center.stop(two)
        try center.post(600, of: "B")
        #expect(center.center.isUnderBackpressure)
        center.disappear(two)
        _ = center.center.checkBackpressure()
        #expect(!center.center.isUnderBackpressure)
    }
}
