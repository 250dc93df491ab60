// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What others want, for whoever brings notifications from elsewhere.
@Suite("G4: the list of names that other clients observe", .limited)
struct InterestTests {
    private let bridge: ClientName = ":1.7"
    private let other: ClientName = ":1.8"

    private func wanted(_ names: [String], any: Bool = false) -> DistributedCenter.Wanted {
        DistributedCenter.Wanted(names: names, any: any)
    }

    @Test("FollowInterest lists each name of other clients once, in byte order, without those of monitors")
    func names() throws {
        let center = Scenario()
        #expect(try center.followInterest(bridge) == wanted([]))
        // Swift's order of texts is another one.
        for name in ["b", "é", "a", "Z", "e\u{301}", "b"] { try center.observe(one, name, "x") }
        try center.observe(two, "b")
        try center.observe(bridge, "own")
        try center.monitor(two, "looked at")
        try center.monitor(two)
        let names = ["Z", "a", "b", "e\u{301}", "é"]
        #expect(try center.followInterest(bridge) == wanted(names))
        #expect(try center.followInterest(one) == wanted(["b", "own"]))
        try center.observe(two, "", "about x")
        #expect(try center.followInterest(bridge) == wanted(names, any: true))
        #expect(try center.followInterest(two).any == false, "nobody counts for itself")
        try center.observe(one)
        #expect(try center.followInterest(two).any)
        center.disappear(one)
        #expect(try center.followInterest(bridge) == wanted(["b"], any: true))
        #expect(try center.followInterest(two) == wanted(["own"]))
    }

    @Test(
        "FollowInterest returns pages within the limits of number and bytes, with at least one name each",
        arguments: [1, 2, 3, 7, 100])
    func pieces(most: Int) throws {
        let center = Scenario()
        let names = (0..<20).map { String(repeating: "x", count: 1 + $0 % 4) + "\($0)" }
        for name in names { try center.observe(one, name) }
        for room in [0, 5, 12, 1000] {
            var found: [String] = []
            while true {
                let piece = try center.followInterest(bridge, after: found.last ?? "", most: most, room: room).names
                guard !piece.isEmpty else { break }
                #expect(piece.count <= most)
                #expect(piece.count == 1 || piece.reduce(0) { $0 + $1.utf8.count } <= room)
                found += piece
                guard found.count <= names.count else { break }
            }
            #expect(found == names.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) })
        }
        #expect(try center.followInterest(bridge, most: 0).names.isEmpty)
        // One that is known need not be there any more.
        #expect(try center.followInterest(bridge, after: "xxxx3\u{1}", most: 1).names == ["xxxx7"])
    }

    @Test("A FollowInterest page may be as large as its limit of bytes, and no larger")
    func exactRoom() throws {
        let center = Scenario()
        for name in ["aa", "bb", "cc"] { try center.observe(one, name) }
        #expect(try center.followInterest(bridge, room: 4).names == ["aa", "bb"])
        #expect(try center.followInterest(bridge, room: 3).names == ["aa"])
    }

    @Test("InterestChanged is sent once until the follower reads the list from the beginning")
    func told() throws {
        let center = Scenario()
        _ = try center.followInterest(bridge)
        let first = try center.observe(one, "Ding")
        #expect(center.interestChanges == [bridge])
        try center.observe(one, "Dong")
        #expect(center.interestChanges == [bridge], "it has not asked since")
        _ = try center.followInterest(bridge, after: "Ding")
        try center.remove(first, of: one)
        #expect(center.interestChanges == [bridge], "nor from the beginning")
        _ = try center.followInterest(bridge)
        center.disappear(one)
        #expect(center.interestChanges == [bridge, bridge])
        _ = try center.followInterest(bridge)
        try center.observe(one)
        #expect(center.interestChanges == [bridge, bridge, bridge], "any name is something, too")
    }

    @Test("InterestChanged is not sent for a change that leaves the follower's list unchanged")
    func untold() throws {
        let center = Scenario()
        try center.observe(one, "Ding")
        _ = try center.followInterest(bridge)
        _ = try center.followInterest(one)
        // Another observer, another client's, one's own, and those that only monitor.
        let second = try center.observe(one, "Ding", "x")
        try center.monitor(two, "Dong")
        let own = try center.observe(bridge, "own")
        #expect(center.interestChanges == [one], "the observer of the bridge is another's for it")
        try center.remove(own, of: bridge)
        #expect(center.interestChanges == [one])
        try center.remove(second, of: one)
        let twos = try center.observe(two, "Ding")
        #expect(center.interestChanges == [one], "it is wanted all the same, and the other has not asked")
        _ = try center.followInterest(one)
        try center.remove(twos, of: two)
        #expect(center.interestChanges == [one, one], "only for the one that is left it was another's")
        try center.observe(two, "Ding")
        try center.observe(three, "Ding")
        center.removeAll(of: three)
        #expect(center.interestChanges == [one, one])
    }

    @Test(
        "A name observed by several clients is listed for each client as long as another client observes the name",
        arguments: [false, true])
    func shared(isNamed: Bool) throws {
        let center = Scenario()
        let name = isNamed ? "Ding" : ""
        func isWanted(by client: ClientName) throws -> Bool {
            let wanted = try center.followInterest(client)
            return isNamed ? wanted.names == ["Ding"] : wanted.any
        }
        var ids: [ClientName: ObserverID] = [:]
        for client in [one, two, three] { ids[client] = try center.observe(client, name) }
        for client in [one, two, three, bridge] { #expect(try isWanted(by: client)) }
        try center.remove(ids[two]!, of: two)
        for client in [one, two, three, bridge] { #expect(try isWanted(by: client)) }
        try center.remove(ids[one]!, of: one)
        #expect(center.interestChanges == [three])
        for client in [one, two, bridge] { #expect(try isWanted(by: client)) }
        #expect(try !isWanted(by: three))
    }

    @Test("Following of interest ends with the client, and is not inherited by a client with its number")
    func ended() throws {
        let center = Scenario()
        _ = try center.followInterest(bridge)
        center.disappear(bridge)
        #expect(center.watched == [bridge] && center.forgotten == [bridge])
        try center.observe(one, "Ding")
        #expect(center.interestChanges.isEmpty)
        // Two that are told, in the order in which they came.
        _ = try center.followInterest(other)
        _ = try center.followInterest(bridge)
        center.revoke([try center.observe(two, "Dong")], of: two)
        #expect(Set(center.interestChanges) == [bridge, other] && center.interestChanges.count == 2)
    }

    @Test("E5: a possibly refused InterestChanged is sent again when the follower reads, unless it read the list since")
    func refused() throws {
        let center = Scenario()
        _ = try center.followInterest(bridge)
        center.stop(bridge)
        try center.observe(one, "Ding")
        center.refuseDelivery(to: bridge)
        #expect(center.interestChanges == [bridge], "it does not read")
        center.goOn(bridge)
        #expect(center.interestChanges == [bridge, bridge])
        _ = try center.followInterest(bridge)
        center.stop(bridge)
        center.refuseProbe(of: bridge)
        center.goOn(bridge)
        #expect(center.interestChanges == [bridge, bridge], "what it was told holds")
        #expect(center.valueRemovals.isEmpty, "it does not follow those")
    }

    @Test("E3: following of interest survives a restart, and the follower gets one InterestChanged")
    func restored() throws {
        let old = Scenario()
        old.center.remembersChanges = true
        try old.observe(one, "Ding")
        _ = try old.followInterest(bridge)
        _ = try old.followInterest(bridge)
        let changes = old.changes.filter { if case .interestFollowed = $0 { true } else { false } }
        #expect(changes.count == 1, "it is remembered once")
        for isWhole in [false, true] {
            let new = DistributedCenter()
            if isWhole {
                old.center.forEachRememberedChange { #expect(new.restore($0)) }
            } else {
                for change in old.changes { #expect(new.restore(change)) }
            }
            var effects: [Effect] = []
            new.finishRestoring(effects: &effects)
            func told() -> [ClientName] {
                effects.compactMap { if case .interestChanged(let client) = $0 { client } else { nil } }
            }
            #expect(told() == [bridge])
            _ = try new.addObserver(of: one, name: "Dong", object: "", options: ObserverOptions(), effects: &effects)
            #expect(told() == [bridge], "once")
            let wanted = try new.followInterest(
                of: bridge, after: "", most: 9, room: 99, byteCount: { $0.utf8.count }, effects: &effects)
            #expect(wanted == self.wanted(["Ding", "Dong"]))
            new.clientDisappeared(one, effects: &effects)
            #expect(told() == [bridge, bridge])
        }
    }

    @Test("E4: FollowInterest of a new client beyond the limit of clients is refused")
    func full() throws {
        let center = Scenario([.clients: 1])
        try center.observe(one, "Ding")
        #expect(throws: CenterError.limitExceeded(.clients, value: 1)) { try center.followInterest(bridge) }
        #expect(try center.followInterest(one) == wanted([]))
    }
}
