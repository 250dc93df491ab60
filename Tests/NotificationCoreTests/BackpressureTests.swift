// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Posters that are faster than observers who read (`docs/flow-control.md`).
@Suite("E4: crowding", .limited)
struct BackpressureTests {
    @Test("E4: half a queue that is read makes posts be read slowly, until it is three eighths")
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

    @Test("E4: who does not read any more slows nobody, until it reads again")
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

    @Test("E4: an answer to a probe from before the first notification is no reading")
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

    @Test("E4: a queue is half full by its bytes, too, and not before")
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
        "E4: half of what there is for all, of which a client that reads has a good part, makes posts be read slowly, too"
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

    @Test("E4: what was sent is told once, and of several the slowest counts")
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

    @Test("E4: whose queue was read, and is half full again, makes posts be read slowly again")
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

    @Test("E4: a client that has read in between has a hundred more looks, and no more")
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

    @Test("E4: what is held for a suspended client slows nobody, and who leaves neither")
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
