// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Which values there are, for whoever takes them elsewhere.
@Suite("G5: the list of retained values", .limited)
struct FollowValuesTests {
    private let bridge: ClientName = ":1.7"
    private let other: ClientName = ":1.8"

    private func keep(
        _ name: String, _ object: String = "", by client: ClientName = one, whileConnected: Bool = false,
        expiresAfter: UInt32? = nil, from host: String? = nil, on center: Scenario
    ) throws {
        try center.post(
            name, object, retention: Retention(whileConnected: whileConnected), expiresAfter: expiresAfter,
            origin: try OutsideOrigin(host: host, user: nil), from: client)
    }

    private func texts(_ values: [Notification]) -> [String] {
        values.map { "\($0.name) \($0.object)" + ($0.identity?.origin?.host.map { " @\($0)" } ?? "") }
    }

    @Test("FollowValues lists each value once in the order of serials, in pages of any size")
    func pieces() throws {
        let center = Scenario()
        for name in ["B", "A", "C"] { try keep(name, "x", on: center) }
        try keep("B", "x", on: center)
        try keep("B", "x", by: bridge, from: "alpha", on: center)
        let all = ["A x", "C x", "B x", "B x @alpha"]
        #expect(texts(try center.followValues(bridge)) == all)
        for (most, room) in [(1, 1 << 20), (2, 1 << 20), (9, 1), (9, 300)] {
            var found: [Notification] = []
            while true {
                let piece = try center.followValues(bridge, after: found.last?.serial ?? 0, most: most, room: room)
                if piece.isEmpty { break }
                #expect(piece.count <= most)
                #expect(piece.count == 1 || piece.reduce(0) { $0 + $1.byteCount } <= room)
                found += piece
            }
            #expect(texts(found) == all)
        }
        let two = try center.followValues(bridge, most: 2).reduce(0) { $0 + $1.byteCount }
        #expect(try center.followValues(bridge, room: two).count == 2)
        #expect(try center.followValues(bridge, room: two - 1).count == 1)
        #expect(try center.followValues(bridge, most: 0).isEmpty && center.followValues(bridge, after: .max).isEmpty)
    }

    @Test("ValuesRemoved is sent once until the follower reads from the beginning, and not for replaced values")
    func removed() throws {
        let center = Scenario()
        for name in ["A", "B", "C", "D"] { try keep(name, on: center) }
        _ = try center.followValues(bridge)
        try keep("A", on: center)
        #expect(center.valueRemovals.isEmpty)
        center.forget("A")
        center.forget("B")
        #expect(center.valueRemovals == [bridge])
        _ = try center.followValues(bridge, after: 1)
        center.forget("C")
        #expect(center.valueRemovals == [bridge], "it has asked for the rest only")
        _ = try center.followValues(bridge)
        _ = try center.followValues(other)
        center.forget("D")
        #expect(center.valueRemovals == [bridge, bridge, other])
        #expect(texts(try center.followValues(bridge)).isEmpty)
        try center.center.checkInvariants()
    }

    @Test("ValuesRemoved is sent for departed posters and noticed expiry, and not for the follower's own removals")
    func ways() throws {
        let center = Scenario()
        try keep("A", by: one, whileConnected: true, on: center)
        try center.observe(one, "Nothing")
        try keep("A", by: one, whileConnected: true, on: center)
        try keep("B", by: two, expiresAfter: 5, on: center)
        try keep("C", by: bridge, from: "alpha", on: center)
        _ = try center.followValues(bridge)
        center.disappear(one)
        #expect(center.valueRemovals == [bridge])
        #expect(texts(try center.followValues(bridge)) == ["B ", "C  @alpha"])
        #expect(center.forget("C", from: try OutsideOrigin(host: "alpha", user: nil)))
        #expect(center.valueRemovals == [bridge], "it knows")
        center.seconds += 6
        #expect(center.values().isEmpty)
        #expect(center.valueRemovals == [bridge, bridge])
    }

    @Test("E5: a possibly refused ValuesRemoved is sent again when the follower reads, unless it read the list since")
    func refused() throws {
        let center = Scenario()
        for name in ["A", "B"] { try keep(name, on: center) }
        _ = try center.followValues(bridge)
        center.stop(bridge)
        center.forget("A")
        center.refuseDelivery(to: bridge)
        #expect(center.valueRemovals == [bridge], "it does not read")
        center.goOn(bridge)
        #expect(center.valueRemovals == [bridge, bridge])
        _ = try center.followValues(bridge)
        center.stop(bridge)
        center.refuseProbe(of: bridge)
        center.goOn(bridge)
        #expect(center.valueRemovals == [bridge, bridge], "what it was told holds")
        #expect(center.interestChanges.isEmpty, "it does not follow that")
    }

    @Test("Following of values ends with the client, and survives a restart with a new ValuesRemoved")
    func restored() throws {
        let old = Scenario()
        old.center.remembersChanges = true
        try keep("A", on: old)
        _ = try old.followValues(bridge)
        _ = try old.followValues(bridge)
        _ = try old.followValues(other)
        old.disappear(other)
        old.forget("A")
        #expect(old.valueRemovals == [bridge])
        let changes = old.changes.filter { if case .valuesFollowed(bridge) = $0 { true } else { false } }
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
            let told = effects.compactMap { if case .valuesRemoved(let client) = $0 { client } else { nil } }
            #expect(told == [bridge])
            try new.checkInvariants()
        }
    }

    @Test("E4: FollowValues of a new client beyond the limit of clients is refused")
    func full() throws {
        let center = Scenario([.clients: 1])
        try center.observe(one, "Ding")
        #expect(throws: CenterError.limitExceeded(.clients, value: 1)) { try center.followValues(bridge) }
        #expect(try center.followValues(one).isEmpty)
    }
}
