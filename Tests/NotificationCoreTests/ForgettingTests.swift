// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// Who uses nothing any more is not kept (D8, E4): a connection, and the account that it belongs to.
@Suite("Release of connections and accounts", .limited)
struct ForgettingTests {
    let center = Scenario()

    private func expectNothingLeft(sourceLocation: SourceLocation = #_sourceLocation) throws {
        #expect(center.center.peers.keys.sorted() == [], sourceLocation: sourceLocation)
        #expect(center.center.accountsByID.keys.sorted() == [], sourceLocation: sourceLocation)
        #expect(center.center.totals.isZero, sourceLocation: sourceLocation)
        #expect(center.center.clientStatuses.isEmpty, sourceLocation: sourceLocation)
        try center.center.checkInvariants()
    }

    @Test("D8: the state of a client that left, and of its process, is freed", arguments: [false, true])
    func client(isIdentified: Bool) throws {
        try center.observe(one, "A", "", .hold)
        if isIdentified { center.identify(one, as: 7) }
        try center.suspend(one)
        try center.post(3, of: "A")
        center.disappear(one)
        try expectNothingLeft()
    }

    @Test("E4: the state of a poster is kept while its posts are queued")
    func poster() throws {
        try center.post("A", style: .asap, from: one)
        try center.post("A", "x", style: .whenIdle, from: one)
        #expect(center.center.peers.keys.sorted() == [one])
        center.postQueued(.asap)
        #expect(center.center.peers.keys.sorted() == [one])
        center.postQueued(.whenIdle)
        try expectNothingLeft()
    }

    @Test("E4, Q2: the state of a poster whose queued post was replaced is freed")
    func replaced() throws {
        try center.post("A", style: .asap, from: one)
        try center.post("A", coalescing: [.name], from: one)
        #expect(center.statistics.queuedPosts == 0)
        try expectNothingLeft()
    }

    @Test("E4: the state of a caller is kept while its calls wait")
    func caller() throws {
        center.keepCall(10, of: one)
        center.keepCall(20, of: one)
        center.center.callIsTaken(of: one, byteCount: 10)
        #expect(center.center.peers.keys.sorted() == [one])
        center.center.callIsTaken(of: one, byteCount: 20)
        try expectNothingLeft()
        center.center.callIsTaken(of: one, byteCount: 20)
        try expectNothingLeft()
    }

    @Test("E4: the state of a caller is kept while a reply to it is unacknowledged")
    func answered() throws {
        for _ in 0..<63 { #expect(center.answer(to: one)) }
        #expect(center.center.peers.keys.sorted() == [one])
        #expect(center.answer(to: one), "the window is full, and it confirms it")
        try expectNothingLeft()
    }

    @Test("D8: an unregistered peer that leaves is freed, and reported as forgotten if it is identified or has replies")
    func stranger() throws {
        for name in [one, two, three] {
            center.stop(name)
            _ = center.answer(to: name)
        }
        center.identify(two, as: 7)
        for _ in 0..<128 { _ = center.answer(to: three) }
        for name in [one, two, three] { center.disappear(name) }
        #expect(center.forgotten == [two, three])
        try expectNothingLeft()
    }

    @Test("A released center frees its peers and accounts")
    func ends() throws {
        weak var account: Account?
        weak var peer: Peer?
        do {
            let other = Scenario()
            try other.observe(one, "A", "", .hold)
            try other.suspend(one)
            try other.post("A")
            account = other.center.accountsByID.values.first
            peer = other.center.peers[one]
            #expect(account != nil && peer != nil)
        }
        #expect(account == nil && peer == nil)
    }

    @Test("E4: an account is freed when its last connection moves to another account")
    func moved() throws {
        try center.observe(one, "A")
        center.identify(one, as: 7)
        #expect(center.center.accountsByID.keys.sorted() == [.process(7)])
        center.identify(one, as: 8)
        #expect(center.center.accountsByID.keys.sorted() == [.process(8)])
        #expect(center.center.accountsByID[.process(8)]?.peers == 1)
    }
}
