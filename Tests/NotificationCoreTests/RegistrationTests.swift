// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

@Suite("D2, D8: registrations at the distributed center", .limited)
struct RegistrationTests {
    @Test("D2: every registration has a unique number and is listed with its name, object and options")
    func listed() throws {
        let tower = Tower()
        let options = ObserverOptions(suspensionBehavior: .hold, automaticSuspension: false, runLoopMode: .modalPanel)
        let ids = [
            try tower.add(":1.1", "Ding", "bell", options), try tower.add(":1.2", "Ding"),
            try tower.add(":1.1", "", "bell"),
            try tower.add(":1.1"),
        ]
        #expect(Set(ids).count == 4 && ids == ids.sorted())
        let registrations = try #require(tower.center.registrations(of: ":1.1"))
        #expect(registrations.map(\.id) == [ids[0], ids[2], ids[3]])
        #expect(registrations.map(\.name) == ["Ding", nil, nil])
        #expect(registrations.map(\.object) == ["bell", "bell", nil])
        #expect(registrations.map(\.options) == [options, ObserverOptions(), ObserverOptions()])
        #expect(registrations.allSatisfy { $0.client == ":1.1" })
        #expect(tower.center.registrations(of: ":1.3") == nil)
    }

    @Test("D8: a client is watched once, from its first registration on")
    func watched() throws {
        let tower = Tower()
        try tower.add(":1.1", "Ding")
        try tower.add(":1.1", "Dong")
        try tower.add(":1.2", "Ding")
        try tower.post("Ding", from: ":1.3")
        #expect(tower.watched == [":1.1", ":1.2"])
        #expect(tower.forgotten.isEmpty)
    }

    @Test("D8: a client removes an observer by number only if the observer is its own, and only once")
    func removeByID() throws {
        let tower = Tower()
        let mine = try tower.add(":1.1", "Ding")
        let twin = try tower.add(":1.1", "Ding")
        let other = try tower.add(":1.2", "Ding")
        #expect(throws: CenterError.unknownObserver(other)) {
            try tower.remove(other, of: ":1.1")
        }
        #expect(throws: CenterError.unknownObserver(mine)) { try tower.remove(mine, of: ":1.3") }
        try tower.remove(mine, of: ":1.1")
        #expect(throws: CenterError.unknownObserver(mine)) { try tower.remove(mine, of: ":1.1") }
        #expect(tower.center.registrations(of: ":1.1")?.map(\.id) == [twin])
        try tower.post("Ding")
        #expect(tower.takeDeliveries().map(\.observers.ids) == [[twin], [other]])
    }

    @Test("D8: an observer's number is never reused")
    func numbers() throws {
        let tower = Tower()
        var last = try tower.add(":1.1", "Ding")
        for _ in 0..<10 {
            try tower.remove(last, of: ":1.1")
            let next = try tower.add(":1.1", "Ding")
            #expect(next > last)
            last = next
        }
        tower.disappear(":1.1")
        #expect(try tower.add(":1.2", "Ding") > last)
    }

    @Test(
        "D8: removal by name and object affects only the caller's observers, and an empty string means any",
        arguments: [
            ("Ding", "bell", [0]), ("Ding", "", [0, 1]), ("", "bell", [0, 2, 4]), ("", "", [0, 1, 2, 3, 4]),
            ("Dang", "", []), ("Ding", "gong", []), ("Dong", "bell", [4]),
        ])
    func removeByName(name: String, object: String, removed: [Int]) throws {
        let tower = Tower()
        let ids = [
            try tower.add(":1.1", "Ding", "bell"), try tower.add(":1.1", "Ding"), try tower.add(":1.1", "", "bell"),
            try tower.add(":1.1"), try tower.add(":1.1", "Dong", "bell"),
        ]
        let others = [try tower.add(":1.2", "Ding", "bell"), try tower.add(":1.2")]
        #expect(tower.remove(of: ":1.1", name: name, object: object) == removed.count)
        #expect(
            tower.center.registrations(of: ":1.1")?.map(\.id)
                == ids.enumerated().filter { !removed.contains($0.offset) }.map(\.element))
        #expect(tower.center.registrations(of: ":1.2")?.map(\.id) == others)
        #expect(tower.remove(of: ":1.1", name: name, object: object) == 0)
        #expect(tower.remove(of: ":1.3", name: "", object: "") == 0)
    }

    @Test("D8: a client that leaves is forgotten with its observers, and other clients keep theirs")
    func disappeared() throws {
        let tower = Tower()
        try tower.add(":1.1", "Ding")
        try tower.add(":1.1")
        let stays = try tower.add(":1.2", "Ding")
        tower.disappear(":1.1")
        #expect(tower.forgotten == [":1.1"])
        #expect(tower.center.registrations(of: ":1.1") == nil)
        #expect(tower.center.clientStatuses.map(\.name) == [":1.2"])
        #expect(tower.center.statistics.observers == 1)
        #expect(try tower.post("Ding") == 1)
        #expect(tower.takeDeliveries().map(\.observers) == [.one(stays)])
        // Again, or one that never was, is nothing.
        tower.disappear(":1.1")
        tower.disappear(":1.77")
        #expect(tower.forgotten == [":1.1"])
    }

    @Test("D8: a client without observers left is still a client until it leaves")
    func noObserversLeft() throws {
        let tower = Tower()
        let id = try tower.add(":1.1", "Ding")
        try tower.remove(id, of: ":1.1")
        #expect(tower.center.registrations(of: ":1.1")?.isEmpty == true)
        #expect(try tower.post("Ding") == 0)
        tower.disappear(":1.1")
        #expect(tower.forgotten == [":1.1"])
    }

    // MARK: Limits (E1)

    @Test("E1: names and objects of the maximum length are accepted, and longer ones are refused without effect")
    func lengths() throws {
        let tower = Tower { limits in
            limits[.nameLength] = 4
            limits[.objectLength] = 6
        }
        // "ö" is two bytes.
        try tower.add(":1.1", "öö", "ööö")
        #expect(throws: CenterError.limitExceeded(.nameLength, value: 4)) { try tower.add(":1.2", "ööx") }
        #expect(throws: CenterError.limitExceeded(.objectLength, value: 6)) { try tower.add(":1.2", "", "öööx") }
        #expect(tower.center.registrations(of: ":1.2") == nil)
        #expect(tower.watched == [":1.1"])
        #expect(try tower.post("öö", "ööö") == 1)
        #expect(throws: CenterError.limitExceeded(.nameLength, value: 4)) { try tower.post("ööx") }
        #expect(throws: CenterError.limitExceeded(.objectLength, value: 6)) { try tower.post("öö", "öööx") }
        #expect(tower.center.statistics.posted == 1)
    }

    @Test("E1: clients, all observers and the observers of one client are limited, and removals free space")
    func counts() throws {
        let tower = Tower { limits in
            limits[.observersPerClient] = 2
            limits[.observers] = 3
            limits[.clients] = 2
        }
        let first = try tower.add(":1.1", "Ding")
        try tower.add(":1.1", "Ding")
        #expect(throws: CenterError.limitExceeded(.observersPerClient, value: 2)) { try tower.add(":1.1", "Ding") }
        try tower.add(":1.2", "Ding")
        #expect(throws: CenterError.limitExceeded(.observers, value: 3)) { try tower.add(":1.2", "Ding") }
        try tower.remove(first, of: ":1.1")
        #expect(throws: CenterError.limitExceeded(.clients, value: 2)) { try tower.add(":1.3", "Ding") }
        #expect(tower.watched == [":1.1", ":1.2"])
        tower.disappear(":1.2")
        try tower.add(":1.3", "Ding")
        #expect(tower.center.statistics.clients == 2)
        #expect(tower.center.statistics.observers == 2)
    }

    @Test("P3: revoked observers are removed with their waiting notifications, and the client is informed once")
    func revoked() throws {
        let center = Scenario()
        let gone = try center.observe(":1.1", "Ding", "", .hold)
        let kept = try center.observe(":1.1", "Dong", "", .hold)
        let other = try center.observe(":1.2", "Ding")
        try center.suspend(":1.1")
        for name in ["Ding", "Dong"] { try center.post(name) }
        center.revoke([gone, other, ObserverID(rawValue: 99)], of: ":1.1")
        #expect(center.revoked == [":1.1": [gone]], "and nothing of others")
        #expect(center.center.registrations(of: ":1.1")?.map(\.id) == [kept])
        #expect(center.center.registrations(of: ":1.2")?.map(\.id) == [other])
        #expect(center.status(":1.1")?.queued == 1)
        center.revoke([gone], of: ":1.1")
        center.revoke([gone], of: ":1.9")
        #expect(center.revoked == [":1.1": [gone]], "once")
        try center.resume(":1.1")
        #expect(center.happened(":1.1").count { if case .delivered = $0 { true } else { false } } == 1)
    }

    @Test("P3, E5: a client that reads again is informed of all revocations that it may not have received")
    func revokedUnread() throws {
        let center = Scenario()
        let ids = try ["A", "B", "C"].map { try center.observe(one, $0) }
        center.stop(one)
        center.revoke([ids[0]], of: one)
        #expect(center.revoked[one] == [ids[0]])
        center.refuseProbe(of: one)
        center.revoke([ids[1]], of: one)
        #expect(center.revoked[one] == [ids[0]], "it does not read")
        center.goOn(one)
        #expect(center.revoked[one] == [ids[0], ids[0], ids[1]])
        center.revoke([ids[2]], of: one)
        #expect(center.revoked[one] == [ids[0], ids[0], ids[1], ids[2]], "nothing twice without a reason")
    }

    @Test("P3, B6: an unsent revocation starts a socket backlog probe of a client that never answered")
    func revokedUnanswered() throws {
        let center = Scenario()
        center.stop(one)
        let ids = try ["A", "B"].map { try center.observe(one, $0) }
        // The windows are full, and nothing is left to send.
        try center.post(64, of: "A")
        #expect(center.received(one).count == 64 && center.witnesses[one] == nil)
        center.revoke([ids[1]], of: one)
        #expect(center.witnesses[one] == 1 && center.revoked[one] == nil)
        center.backlogProbe(one, hasRead: true)
        #expect(center.revoked[one] == [ids[1]])
    }

    @Test("P3, E5: a revocation that the client confirmed is not repeated with a later one")
    func revokedConfirmed() throws {
        let center = Scenario()
        let ids = try ["A", "B", "C"].map { try center.observe(one, $0) }
        // The revocation is the last message of a window, so that the client confirms it and nothing behind it.
        try center.post(63, of: "A")
        center.revoke([ids[1]], of: one)
        center.stop(one)
        center.revoke([ids[2]], of: one)
        center.refuseProbe(of: one)
        center.goOn(one)
        #expect(center.revoked[one] == [ids[1], ids[2], ids[2]])
    }
}
