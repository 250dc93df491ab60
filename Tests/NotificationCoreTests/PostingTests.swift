// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

@Suite("D2 to D6: posts at the distributed center", .limited)
struct PostingTests {
    @Test("C1, D2: a post reaches the clients whose registrations match, and their number is returned")
    func matching() throws {
        let tower = Tower()
        let exact = try tower.add(":1.1", "Ding", "bell")
        let anyObject = try tower.add(":1.2", "Ding")
        let anyName = try tower.add(":1.3", "", "bell")
        let everything = try tower.add(":1.4")
        try tower.add(":1.5", "Dong")
        try tower.add(":1.6", "Ding", "gong")
        func receivers(_ name: String, _ object: String) throws -> [ObserverID] {
            let count = try tower.post(name, object)
            let deliveries = tower.takeDeliveries()
            #expect(count == deliveries.count)
            return deliveries.flatMap(\.observers.ids)
        }
        #expect(try receivers("Ding", "bell") == [exact, anyObject, anyName, everything])
        #expect(try receivers("Ding", "") == [anyObject, everything])
        #expect(try receivers("Dang", "bell") == [anyName, everything])
        #expect(try receivers("Dang", "") == [everything])
    }

    @Test("D2: names and objects match byte for byte, in any language")
    func bytes() throws {
        let tower = Tower()
        try tower.add(":1.1", "caf\u{E9}")
        #expect(try tower.post("caf\u{E9}") == 1)
        #expect(try tower.post("cafe\u{301}") == 0)
        #expect(try tower.post("CAF\u{C9}") == 0)
        #expect(try tower.post("caf\u{E9} ") == 0)
        #expect(tower.remove(of: ":1.1", name: "cafe\u{301}", object: "") == 0)
        #expect(tower.remove(of: ":1.1", name: "caf\u{E9}", object: "") == 1)
    }

    @Test("D6: a notification arrives once per client, with all matching observers in registration order")
    func grouping() throws {
        let tower = Tower()
        let first = try tower.add(":1.1")
        let other = try tower.add(":1.2", "Ding")
        let second = try tower.add(":1.1", "Ding")
        try tower.add(":1.1", "Dong")
        let third = try tower.add(":1.1", "", "bell")
        #expect(try tower.post("Ding", "bell", from: ":1.7") == 2)
        let deliveries = tower.takeDeliveries()
        #expect(deliveries.map(\.client) == [":1.1", ":1.2"])
        #expect(deliveries.map(\.observers) == [.many([first, second, third]), .one(other)])
        for delivery in deliveries {
            #expect(delivery.notification.name == "Ding")
            #expect(delivery.notification.object == "bell")
            #expect(delivery.notification.poster == ":1.7")
        }
    }

    @Test("C10: a client with two equal observers gets one notification that names both")
    func twice() throws {
        let tower = Tower()
        let ids = [try tower.add(":1.1", "Ding"), try tower.add(":1.1", "Ding")]
        #expect(try tower.post("Ding") == 1)
        #expect(tower.takeDeliveries().map(\.observers) == [.many(ids)])
    }

    @Test("D4: serials count all accepted posts; D6: sequence numbers count each client's notifications, without holes")
    func serialAndSequence() throws {
        let tower = Tower()
        try tower.add(":1.1", "Ding")
        try tower.add(":1.2")
        try tower.post("Ding")
        try tower.post("Dong")
        try tower.post("Ding")
        #expect(throws: CenterError.invalidName) { try tower.post("") }
        try tower.post("Ding")
        let deliveries = tower.takeDeliveries()
        func numbers(_ client: ClientName) -> [[UInt64]] {
            deliveries.filter { $0.client == client }.map { [$0.notification.serial, $0.sequence] }
        }
        #expect(numbers(":1.1") == [[1, 1], [3, 2], [4, 3]])
        #expect(numbers(":1.2") == [[1, 1], [2, 2], [3, 3], [4, 4]])
        // Serials also count posts that nobody heard.
        tower.disappear(":1.1")
        tower.disappear(":1.2")
        try tower.post("Ding")
        try tower.add(":1.3", "Ding")
        try tower.post("Ding")
        #expect(tower.takeDeliveries().map { [$0.notification.serial, $0.sequence] } == [[6, 1]])
    }

    @Test("D4: all clients see the posts in one order")
    func order() throws {
        let tower = Tower()
        for number in 1...5 { try tower.add(client(number)) }
        for number in 0..<50 { try tower.post("n\(number)", from: client(number % 7)) }
        let deliveries = tower.takeDeliveries()
        for number in 1...5 {
            let names = deliveries.filter { $0.client == client(number) }.map(\.notification.name)
            #expect(names == (0..<50).map { "n\($0)" })
        }
    }

    @Test("D5: a poster gets its own posts like any other client")
    func own() throws {
        let tower = Tower()
        let id = try tower.add(":1.1", "Ding")
        #expect(try tower.post("Ding", from: ":1.1") == 1)
        #expect(tower.takeDeliveries().map(\.observers) == [.one(id)])
    }

    @Test("D2, D3: the default options are style now, no coalescing, and no immediate delivery to suspended clients")
    func standardOptions() throws {
        let post = PostOptions()
        #expect(!post.deliverImmediately)
        #expect(post.postingStyle == .now)
        #expect(post.coalescing.isEmpty)
        let observer = ObserverOptions()
        #expect(observer.suspensionBehavior == .coalesce)
        #expect(observer.automaticSuspension)
        #expect(observer.runLoopMode == .default)

        let center = DistributedCenter()
        var effects: [Effect] = []
        _ = try center.addObserver(of: one, name: "A", object: "", options: observer, effects: &effects)
        try center.setSuspended(true, of: one, effects: &effects)
        _ = try center.post(
            name: "A", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 0), from: two, effects: &effects)
        center.sendAllReady(effects: &effects)
        #expect(!effects.contains { if case .deliver = $0 { true } else { false } })
        #expect(center.statistics.queued == 1)
    }

    @Test("N1: a post without a name is refused and changes nothing")
    func emptyName() throws {
        let tower = Tower()
        try tower.add(":1.1")
        #expect(throws: CenterError.invalidName) { try tower.post("") }
        #expect(throws: CenterError.invalidName) { try tower.center.checkPost(name: "", object: "bell") }
        #expect(tower.takeDeliveries().isEmpty)
        #expect(tower.center.statistics.posted == 0)
    }

    @Test("N1: all clients share one notification object with the poster's userInfo")
    func shared() throws {
        let tower = Tower()
        try tower.add(":1.1")
        try tower.add(":1.2")
        let payload = Tower.Payload()
        _ = try tower.center.post(
            name: "Ding", object: "", userInfo: payload, from: ":1.9", effects: &tower.effects)
        tower.center.sendAllReady(effects: &tower.effects)
        let notifications = tower.takeDeliveries().map(\.notification)
        #expect(notifications.count == 2)
        #expect(notifications.allSatisfy { $0 === notifications[0] && $0.userInfo === payload })
    }

    @Test("A delivered notification is released")
    func released() throws {
        let tower = Tower()
        try tower.add(":1.1")
        weak var watched: Tower.Payload?
        do {
            let payload = Tower.Payload()
            watched = payload
            _ = try tower.center.post(
                name: "Ding", object: "", userInfo: payload, from: ":1.9", effects: &tower.effects)
        }
        tower.center.sendAllReady(effects: &tower.effects)
        #expect(watched != nil)
        _ = tower.takeDeliveries()
        #expect(watched == nil)
    }

    @Test("Statistics count posts, deliveries, unmatched posts, clients and observers")
    func statistics() throws {
        let tower = Tower()
        try tower.add(":1.1", "Ding")
        try tower.add(":1.1", "Ding")
        try tower.add(":1.2")
        try tower.post("Ding")
        try tower.post("Dong")
        tower.disappear(":1.2")
        try tower.post("Dong")
        let statistics = tower.center.statistics
        #expect(statistics.posted == 3)
        #expect(statistics.delivered == 3)
        #expect(statistics.unmatched == 1)
        #expect(statistics.dropped == 0)
        #expect(statistics.queued == 0)
        #expect(statistics.clients == 1)
        #expect(statistics.observers == 2)
        let status = try #require(tower.center.clientStatuses.first)
        #expect(status.name == ":1.1")
        #expect(status.observers == 2)
        #expect(status.delivered == 1)
        #expect(status.dropped == 0 && status.queued == 0)
        #expect(!status.isSuspended && status.cause == .none)
    }
}
