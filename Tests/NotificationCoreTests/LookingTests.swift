// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What can be looked at from outside.
@Suite("Statistics and status of clients and posters", .limited)
struct LookingTests {
    let center = Scenario()

    @Test("E1, E4: byte counts include the overhead of each queued notification, post, call and answer")
    func sizes() throws {
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post("A", bytes: 43)
        try center.post("B", bytes: 44, style: .asap)
        center.keepCall(1000, of: two)
        center.stop(three)
        for _ in 0..<129 { _ = center.answer(to: three) }

        let statistics = center.statistics
        #expect(statistics.queuedBytes == 1 + 43 + 256)
        #expect(statistics.queuedPostBytes == 1 + 44 + 384)
        #expect(statistics.waitingCallBytes == 1000)
        #expect(statistics.answerBytes == 100 + 256)
        #expect(statistics.inFlightBytes == 128 * 100 + 256, "the answers that went, and that it is suspended")
        let observer = 1 + 512
        #expect(center.center.heldBytes == 2048 + observer + 300 + 429 + 1000 + 356 + 3 * 1280, "three are no clients")
        #expect(statistics.queued == 1 && statistics.queuedPosts == 1)
    }

    @Test("E4: every control signal to a client counts in the in-flight bytes")
    func signals() throws {
        let observers = [try center.observe(one, "A"), try center.observe(one)]
        var expected: UInt64 = 0
        func expectOnTheWay(_ bytes: UInt64, sourceLocation: SourceLocation = #_sourceLocation) {
            expected += bytes
            #expect(center.statistics.inFlightBytes == expected, sourceLocation: sourceLocation)
        }
        try center.lose(5, "A")
        expectOnTheWay(256 + 2 * 8)
        center.center.maxBytes = 0
        try center.post("A")
        expectOnTheWay(256)
        try center.suspend(one)
        expectOnTheWay(256)
        center.revoke(Set(observers), of: one)
        expectOnTheWay(256 + 2 * 8)
    }

    @Test("S4: announced counts include sent notifications and reported losses, but no waiting or unreported ones")
    func told() throws {
        center.center.limits[.queuedPerClient] = 50
        try center.observe(one, "A", "", .hold)
        center.stop(one)
        try center.post(200, of: "A")
        #expect(center.center.waiting(for: one) == 50 + 22)
        #expect(center.center.announcedCounts(of: one) == ClientCounts(sequence: 128, delivered: 128, dropped: 0))
        #expect(center.status(one)?.dropped == 22)
        center.goOn(one)
        #expect(center.center.waiting(for: one) == 0)
        #expect(center.center.announcedCounts(of: one) == ClientCounts(sequence: 200, delivered: 178, dropped: 22))
        #expect(center.center.waiting(for: two) == 0)
        #expect(center.center.announcedCounts(of: two) == nil)
    }

    @Test("B3: a client's status counts its posts, including lost ones, and its unacknowledged notifications")
    func status() throws {
        try center.observe(one, "A")
        for _ in 0..<3 { try center.post("A", from: one) }
        try center.post("A", from: two)
        try center.lose(2, "other", from: one)
        try center.post("A", style: .asap, from: one)
        center.postQueued(.asap)
        let status = try #require(center.status(one))
        #expect(status.posted == 6)
        #expect(status.delivered == 5)
        #expect(status.unconfirmed == 5)
        #expect(status.flow == .open)
        #expect(center.center.clientStatuses.count == 1)
    }

    @Test("B3: posters are listed by number of posts, with their identity, whether or not they observe")
    func posters() throws {
        func posters(_ most: Int = .max, without hidden: ClientName? = nil) -> [String] {
            center.center.posterStatuses(most: most) { $0 != hidden }.map { "\($0.name) \($0.posted) \($0.refused)" }
        }
        for (number, name) in [one, two, three].enumerated() {
            center.identify(name, as: UInt32(number + 1), Identity(processID: UInt32(number + 1)))
        }
        try center.observe(one, "A")
        #expect(posters() == [], "nobody has posted")
        try center.post("A", from: two)
        for _ in 0..<2 { try center.post("A", from: one) }
        center.center.postWasRefused(of: three)
        #expect(posters() == ["\(one) 2 0", "\(two) 1 0", "\(three) 0 1"])
        #expect(posters(2) == ["\(one) 2 0", "\(two) 1 0"] && posters(0) == [])
        #expect(posters(1, without: one) == ["\(two) 1 0"])
        #expect(center.center.posterStatuses(most: 9) { _ in true }.map(\.identity.processID) == [1, 2, 3])
        try center.post("A", style: .asap, from: two)
        #expect(posters(without: one).first == "\(two) 1 0", "it waits")
        center.postQueued(.asap)
        center.center.postWasRefused(of: two)
        #expect(posters() == ["\(two) 2 1", "\(one) 2 0", "\(three) 0 1"])
        for name in [one, two] { center.disappear(name) }
        #expect(posters() == ["\(three) 0 1"])
        // Nothing is kept of whom nobody knows.
        center.center.postWasRefused(of: ":1.77")
        try center.post("A", from: ":1.77")
        #expect(posters() == ["\(three) 0 1"])
    }

    @Test("B3, E4: the center remembers at most 1024 posters that are not clients")
    func manyPosters() throws {
        try center.observe(one, "A")
        for number in 1...3000 {
            let name = ClientName(rawValue: ":2.\(number)")!
            center.identify(name, as: UInt32(number), Identity(processID: UInt32(number)))
            try center.post("A", from: name)
        }
        #expect(center.center.posterStatuses(most: .max) { _ in true }.count == 1024)
    }

    @Test("E3: the statistics count posts lost by earlier processes")
    func lostPosts() {
        center.center.countLostPosts(3)
        center.center.countLostPosts(4)
        #expect(center.statistics.lostPosts == 7)
    }

    @Test("D6: the count of an observer list equals the number of its IDs")
    func observerLists() {
        let ids = (1...3).map { ObserverID(rawValue: $0) }
        #expect(ObserverList.one(ids[0]).count == 1 && ObserverList.one(ids[0]).ids == [ids[0]])
        #expect(ObserverList.many(ids).count == 3 && ObserverList.many(ids).ids == ids)
    }
}
