// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Removing observers takes them out of what waits.
@Suite("Removal of observers from queued notifications", .limited)
struct HeldRemovalTests {
    let center = Scenario()

    @Test("S1, D8: held notifications are not delivered to a removed observer")
    func oneOfTwo() throws {
        let removed = try center.observe(one, "A", "", .hold)
        let kept = try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post("A")
        try center.remove(removed, of: one)
        try center.post("A")
        try center.resume(one)
        #expect(center.received(one).map(\.observers) == [[kept], [kept]])
    }

    @Test("S1, D8: a held notification whose last observer is removed is not delivered, and leaves no gap")
    func lastOne() throws {
        let removed = try center.observe(one, "A", "", .hold)
        try center.observe(one, "B", "", .hold)
        try center.suspend(one)
        for name in ["A", "B", "A"] { try center.post(name, bytes: 100) }
        let bytes = center.statistics.queuedBytes
        try center.remove(removed, of: one)
        #expect(center.status(one)?.queued == 1)
        #expect(center.statistics.queued == 1)
        #expect(center.statistics.queuedBytes == bytes / 3)
        try center.resume(one)
        #expect(center.names(one) == ["B"])
        #expect(center.sequences(one) == [1])
        #expect(center.losses(one) == [], "what is not wanted any more is no loss")
        #expect(center.statistics.dropped == 0)
    }

    @Test("D8: removal by name affects only held notifications of that name and of the caller")
    func byName() throws {
        for client in [one, two] {
            try center.observe(client, "A", "", .hold)
            try center.observe(client, "B", "", .hold)
            try center.suspend(client)
        }
        try center.post("A")
        try center.post("B")
        #expect(center.removeAll(of: one, name: "A") == 1)
        for client in [one, two] { try center.resume(client) }
        #expect(center.names(one) == ["B"])
        #expect(center.names(two) == ["A", "B"])
        #expect(try center.post("A") == 1, "the other's registration is there still")
    }

    @Test("D8: removal of another client's observer by number is refused")
    func byNumber() throws {
        let observer = try center.observe(one, "A", "", .hold)
        try center.observe(two, "A", "", .hold)
        try center.suspend(one)
        try center.post("A")
        #expect(throws: CenterError.unknownObserver(observer)) { try center.remove(observer, of: two) }
        try center.resume(one)
        #expect(center.names(one) == ["A"])
    }

    @Test("D8: removal by name compares byte for byte")
    func byteForByte() throws {
        try center.observe(one, "\u{E9}", "", .hold)
        try center.observe(one, "e\u{301}", "", .hold)
        try center.observe(one, "A", "\u{E9}", .hold)
        #expect(center.removeAll(of: one, name: "\u{E9}") == 1)
        #expect(center.removeAll(of: one, object: "e\u{301}") == 0)
        #expect(try center.post("e\u{301}") == 1)
        #expect(try center.post("\u{E9}") == 0)
        #expect(try center.post("A", "e\u{301}") == 0)
        #expect(try center.post("A", "\u{E9}") == 1)
    }

    @Test("A4: a removed observer does not receive notifications that wait for its client to read")
    func ofAStoppedClient() throws {
        let removed = try center.observe(one, "A")
        let kept = try center.observe(one, "B")
        center.stop(one)
        try center.post(128, of: "A")
        center.clear()
        for name in ["A", "B", "A"] { try center.post(name) }
        try center.remove(removed, of: one)
        #expect(center.status(one)?.queued == 1)
        center.goOn(one)
        #expect(center.happened(one) == [.delivered("B", to: [kept], sequence: 129)])
    }

    @Test("S1: a new registration does not receive notifications held for a removed observer")
    func registeringAgain() throws {
        let removed = try center.observe(one, "A")
        try center.suspend(one)
        try center.post("A")
        try center.remove(removed, of: one)
        let added = try center.observe(one, "A")
        #expect(added != removed)
        try center.post("A")
        #expect(center.statistics.coalesced == 0)
        try center.resume(one)
        #expect(center.received(one).map(\.observers) == [[added]])
        #expect(center.received(one).map(\.serial) == [2])
    }

    @Test("S1: coalescing is correct after removal of many notifications from the middle of the queue")
    func manyHoles() throws {
        let going = try center.observe(one, "A", "", .hold)
        try center.observe(one, "B", "", .coalesce)
        try center.suspend(one)
        // Enough for the queue to give empty places back, with other things before and between.
        for round in 1...200 {
            try center.post("A", "\(round)")
            try center.post("B", "\(round % 3)")
        }
        #expect(center.status(one)?.queued == 203)
        try center.remove(going, of: one)
        for object in ["1", "2", "2"] { try center.post("B", object) }
        #expect(center.status(one)?.queued == 3)
        try center.resume(one)
        #expect(center.objects(one) == ["0", "1", "2"])
        #expect(center.received(one).last?.serial == 403)
    }
}
