// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Overload and waiting calls (`docs/flow-control.md`).
@Suite("E4: waiting calls, and posts lost by overload", .limited)
struct CallingTests {
    @Test("E4: waiting calls are charged to their caller until they are taken")
    func charge() throws {
        let center = Scenario()
        center.keepCall(1000, of: one)
        center.keepCall(500, of: one)
        #expect(center.center.keepsCalls(of: one) && !center.center.keepsCalls(of: two))
        #expect(center.statistics.waitingCallBytes == 1500)
        center.center.callIsTaken(of: one, byteCount: 1000)
        center.center.callIsTaken(of: one, byteCount: 500)
        #expect(!center.center.keepsCalls(of: one))
        #expect(center.statistics.waitingCallBytes == 0)
        try center.center.checkInvariants()
    }

    @Test("E4: a partially received post is charged with its client's calls, and freed with the client or its channel")
    func parts() throws {
        let center = Scenario([.waitingCallBytes: 80_000])
        var effects: [Effect] = []
        func hold(_ byteCount: Int, of name: ClientName) -> Bool {
            center.center.holdParts(of: name, byteCount: byteCount, effects: &effects)
        }
        #expect(hold(0, of: one) && hold(70_000, of: one), "one alone may have all")
        #expect(!center.center.keepsCalls(of: one))
        center.keepCall(100, of: one)
        #expect(center.statistics.waitingCallBytes == 70_100 && center.statistics.memoryBytes >= 70_100)
        #expect(!hold(1, of: two) && hold(12_000, of: one) && hold(8000, of: two) && !hold(8001, of: two))
        #expect(!center.mayKeep(60_000, of: three) && center.mayKeep(50_000, of: three))
        #expect(center.statistics.waitingCallBytes == 20_100)
        center.center.callIsTaken(of: one, byteCount: 100)
        #expect(!center.center.keepsCalls(of: one) && center.statistics.waitingCallBytes == 20_000)
        try center.center.checkInvariants()
        #expect(hold(10, of: one) && center.statistics.waitingCallBytes == 8010)
        center.center.clientDisappeared(one, effects: &effects)
        #expect(center.statistics.waitingCallBytes == 8000)
        center.center.channelGone(of: two, effects: &effects)
        #expect(center.statistics.waitingCallBytes == 0)
        try center.center.checkInvariants()
    }

    @Test("E4: for a new partial post, the process that holds most gives up its largest partial post")
    func partsGivenUp() {
        let center = Scenario([.waitingCallBytes: 80_000])
        for (client, process) in [(one, 7), (two, 7), (three, 8)] { center.identify(client, as: UInt32(process)) }
        var effects: [Effect] = []
        func givenUp(for name: ClientName, _ byteCount: Int, but kept: ClientName? = nil) -> [ClientName] {
            center.center.partsToGiveUp(for: name, byteCount: byteCount) { $0 != kept }
        }
        #expect(center.center.holdParts(of: one, byteCount: 9000, effects: &effects))
        #expect(center.center.holdParts(of: two, byteCount: 10_000, effects: &effects))
        #expect(givenUp(for: three, 1001) == [two] && givenUp(for: three, 8999) == [two])
        #expect(givenUp(for: three, 9001) == [two] && givenUp(for: three, 11_001).isEmpty, "it would hold more")
        #expect(givenUp(for: three, 2000, but: two) == [one])
        #expect(givenUp(for: one, 20_000).isEmpty, "they are of the same process")
        center.identify(two, as: 9)
        #expect(givenUp(for: one, 9500).isEmpty, "there is room")
        #expect(center.center.holdParts(of: three, byteCount: 1000, effects: &effects))
        #expect(givenUp(for: one, 9500) == [two] && givenUp(for: one, 10_000).isEmpty)
        #expect(!center.center.holdParts(of: three, byteCount: 50_000, effects: &effects))
        #expect(center.center.holdParts(of: three, byteCount: 50_000, isWhole: true, effects: &effects))
        #expect(center.statistics.waitingCallBytes == 69_000 && givenUp(for: one, 40_000).isEmpty)
    }

    @Test("E4: all connections of a process share its part of waiting calls, and other processes always get some")
    func shares() {
        let center = Scenario([.waitingCallBytes: 80_000])
        center.identify(one, as: 7)
        center.identify(two, as: 7)
        center.identify(three, as: 8)
        center.keepCall(38_500, of: one)
        center.keepCall(38_500, of: two)
        #expect(!center.mayKeep(1000, of: one))
        #expect(!center.mayKeep(1000, of: two))
        #expect(center.mayKeep(1000, of: three))
        #expect(center.center.mayKeepCall(of: one, byteCount: 1000, wantsAnswer: true), "a little more")
        #expect(!center.center.mayKeepCall(of: one, byteCount: 6000, wantsAnswer: true))
        #expect(!center.mayKeep(10_001, of: three), "not more than there is")
    }

    @Test("E4: a process may use 31/32 of the bytes of waiting calls, and 63/64 for calls that want an answer")
    func exactShares() {
        let center = Scenario([.waitingCallBytes: 80_000]).center
        for (bytes, wantsAnswer) in [(77_500, false), (78_750, true)] {
            #expect(center.mayKeepCall(of: one, byteCount: bytes, wantsAnswer: wantsAnswer))
            #expect(!center.mayKeepCall(of: one, byteCount: bytes + 1, wantsAnswer: wantsAnswer))
        }
    }

    @Test("E4: a flood of calls from several processes leaves a reserve for processes with a small backlog")
    func reserve() throws {
        let center = Scenario([.waitingCallBytes: 16 << 20])
        for number in 0..<8 {
            let greedy = ClientName(unchecked: ":1.1\(number)")
            center.identify(greedy, as: UInt32(100 + number))
            for byteCount in [10_000, 500] {
                while center.center.mayKeepCall(of: greedy, byteCount: byteCount, wantsAnswer: true) {
                    center.keepCall(byteCount, of: greedy)
                }
            }
        }
        center.identify(one, as: 7)
        center.identify(two, as: 7)
        #expect(center.mayKeep(3000, of: one))
        center.keepCall(3000, of: one)
        #expect(center.mayKeep(1000, of: two))
        #expect(!center.mayKeep(1097, of: two), "the backlog of its process would be above 4,096 bytes")
        var others = 0
        while center.statistics.waitingCallBytes < 16 << 20 {
            others += 1
            let other = ClientName(unchecked: ":1.2\(others)")
            center.identify(other, as: UInt32(200 + others))
            guard center.mayKeep(1000, of: other) else { break }
            center.keepCall(1000, of: other)
        }
        #expect(center.statistics.waitingCallBytes <= 16 << 20, "however many there are")
        #expect(others > 200, "the reserve is 262,144 bytes")
        try center.center.checkInvariants()
    }

    @Test("D8, E4: waiting calls of a client that left are charged to its process until they are served")
    func leaving() throws {
        let center = Scenario([.waitingCallBytes: 80_000])
        center.identify(one, as: 7)
        try center.observe(one, "A")
        center.keepCall(70_000, of: one)
        center.disappear(one)
        try center.center.checkInvariants()
        #expect(center.statistics.waitingCallBytes == 70_000)
        center.identify(two, as: 7)
        #expect(!center.mayKeep(8000, of: two), "its process has it still")
        center.center.callIsTaken(of: one, byteCount: 70_000)
        #expect(center.mayKeep(8000, of: two))
        try center.center.checkInvariants()
    }

    @Test("S4: posts lost by overload are reported to every client they match, and use up sequence numbers")
    func lost() throws {
        let center = Scenario()
        let first = try center.observe(one, "A")
        let second = try center.observe(one)
        try center.observe(two, "B")
        try center.post("A")
        try center.lose(5, "A")
        try center.post("A")
        #expect(
            center.happened(one) == [
                .delivered("A", to: [first, second], sequence: 1), .dropped(5, of: [first, second], .overload),
                .delivered("A", to: [first, second], sequence: 7),
            ])
        #expect(center.happened(two) == [])
        #expect(center.statistics.posted == 7 && center.statistics.dropped == 5)
        try center.lose(2, "C")
        #expect(center.statistics.dropped == 7, "one observer has any name")
    }

    @Test("S4: a lost post counts as dropped for exactly the clients that a delivered post would reach")
    func reach() throws {
        let texts = ["A", "B", "o", "p"]
        for number in 0..<32 {
            let center = Scenario()
            // Any of: a name, a name and an object, an object, everything, another name.
            let kinds = [("A", ""), ("A", "o"), ("", "o"), ("", ""), ("B", "p")]
            for (place, kind) in kinds.enumerated() where number & 1 << place != 0 {
                try center.observe(ClientName(rawValue: ":1.\(place + 1)")!, kind.0, kind.1)
            }
            for name in texts {
                for object in [""] + texts {
                    let before = center.center.statistics
                    try center.post(name, object)
                    let delivered = center.center.statistics.delivered - before.delivered
                    try center.lose(3, name, object)
                    let after = center.center.statistics
                    #expect(after.dropped - before.dropped == 3 * delivered, "\(number): \(name) from \(object)")
                    #expect(after.unmatched - before.unmatched == (delivered == 0 ? 4 : 0))
                }
            }
        }
    }

    @Test("E4: lost posts of unobserved names and objects are counted together")
    func reachOfOthers() throws {
        let center = Scenario()
        try center.observe(one, "A", "o")
        try center.observe(two, "", "p")
        func reach(_ name: String, _ object: String) -> LostPost.Reach? {
            center.center.reach(ofPost: name, object: object, deliverImmediately: false)
        }
        let other = try #require(reach("B", ""))
        for (name, object) in [("C", ""), ("C", "o"), ("D", "x")] { #expect(reach(name, object) == other) }
        #expect(reach("A", "x") == reach("A", "") && reach("A", "") != other)
        #expect(Set([("A", "o"), ("A", "p"), ("B", "p")].map { reach($0, $1) } + [other, reach("A", "")]).count == 5)
        #expect(reach("", "o") == nil)
    }

    @Test("B3: lost posts that match no observer except monitors count as unmatched")
    func unmatched() throws {
        let center = Scenario()
        try center.monitor(one)
        try center.observe(two, "A")
        try center.lose(5, "A")
        #expect(center.statistics.unmatched == 0)
        try center.lose(2, "B")
        #expect(center.statistics.posted == 7 && center.statistics.unmatched == 2)
    }

    @Test("S4: a client that does not read gets one Dropped signal with the sum of lost posts when it reads")
    func unread() throws {
        let center = Scenario()
        let observer = try center.observe(one, "A")
        center.stop(one)
        try center.post(128, of: "A")  // two windows are on their way
        try center.lose(3, "A")
        try center.lose(4, "A")
        center.goOn(one)
        #expect(center.happened(one).last == .dropped(7, of: [observer], .overload))
    }

    @Test("S1: a lost post is no loss for a suspended client that would drop it, unless it is deliver-immediately")
    func suspended() throws {
        let center = Scenario()
        let dropped = try center.observe(one, "A", "", .drop)
        let held = try center.observe(two, "A", "", .hold)
        for client in [one, two] { try center.suspend(client) }
        try center.lose(1, "A")
        #expect(!center.happened(one).contains { if case .dropped = $0 { true } else { false } })
        #expect(center.happened(two).last == .dropped(1, of: [held], .overload))
        try center.lose(2, "A", immediately: true)
        #expect(center.happened(one).last == .dropped(2, of: [dropped], .overload), "these it was to get all the same")
    }

    @Test("N1, E1: an invalid post is refused, and does not count as lost")
    func refused() {
        let center = Scenario()
        #expect(throws: CenterError.invalidName) { try center.lose(1, "") }
        #expect(throws: CenterError.self) { try center.lose(1, String(repeating: "n", count: 2000)) }
        #expect(center.statistics.posted == 0)
    }
}
