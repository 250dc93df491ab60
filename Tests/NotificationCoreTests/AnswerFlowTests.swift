// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Answers to calls count in the windows of the callers (`docs/flow-control.md`).
@Suite("E4: flow control of replies", .limited)
struct AnswerFlowTests {
    @Test("E4: a caller that does not read gets two windows of replies, and the queued rest when it reads")
    func kept() throws {
        let center = Scenario()
        center.stop(one)
        let sent = (0..<500).map { _ in center.answer(to: one) }
        #expect(sent == (0..<500).map { $0 < 128 })
        #expect(center.probes[one] == 2)
        #expect(center.statistics.answerBytes > 372 * 100)
        #expect(center.status(one)?.flow == .unanswered, "it is shown, though it has no observers")
        let status = try #require(center.status(one))
        #expect(status.unconfirmed == 128)
        #expect([status.observers, status.queued] == [0, 0] && [status.delivered, status.dropped] == [0, 0])
        #expect(!status.isSuspended && status.cause == .none)
        center.answer(one)
        #expect(center.sentAnswers[one] == 64)
        center.goOn(one)
        #expect(center.sentAnswers[one] == 372)
        #expect(center.statistics.answerBytes == 0)
        #expect(center.status(one) == nil)
        try center.center.checkInvariants()
    }

    @Test("E4: a new reply never overtakes queued replies")
    func order() throws {
        let center = Scenario()
        center.stop(one)
        for _ in 0..<200 { _ = center.answer(to: one) }
        center.stop(one)
        center.answer(one)
        #expect(center.sentAnswers[one] == 64)
        #expect(!center.answer(to: one), "eight are kept, and the window is used up again")
        center.goOn(one)
        #expect(center.answer(to: one))
    }

    @Test("E4: replies and notifications count in one window")
    func oneWindow() throws {
        let center = Scenario()
        try center.observe(one, "A")
        center.stop(one)
        for _ in 0..<100 { #expect(center.answer(to: one)) }
        try center.post(100, of: "A")
        #expect(center.received(one).count == 28)
        #expect(!center.answer(to: one))
        center.goOn(one)
        #expect(center.received(one).count == 100)
        #expect(center.sentAnswers[one] == 1)
    }

    @Test("E4: a caller that does not read its replies is no longer served, and other callers are")
    func noLongerServed() throws {
        let center = Scenario([.answerBytesPerClient: 10_000])
        center.stop(one)
        var served = 0
        while center.center.isServed(one), served < 1000 {
            _ = center.answer(to: one)
            served += 1
        }
        #expect(served > 128 && served < 128 + 40)
        #expect(center.center.isServed(two))
        center.goOn(one)
        #expect(center.center.isServed(one))
    }

    @Test("E4: a process can't use all of the limit for reply bytes")
    func shareOfAnswers() throws {
        let center = Scenario([.answerBytes: 100_000])
        for number in 1...20 {
            try center.observe(client(number), "A")
            center.identify(client(number), as: 7)
            center.stop(client(number))
            for _ in 0..<1000 where center.center.isServed(client(number)) { _ = center.answer(to: client(number)) }
        }
        #expect(center.statistics.answerBytes <= 60_000)
        center.stop(client(30))
        for _ in 0..<150 {
            #expect(center.center.isServed(client(30)))
            _ = center.answer(to: client(30))
        }
    }

    @Test("E4: replies queued for a process stay bounded, independent of the number of its unread connections")
    func largeFirstAnswers() throws {
        let center = Scenario([.answerBytes: 32 << 20])
        for number in 1...300 {
            let caller = client(number)
            center.identify(caller, as: 7)
            center.stop(caller)
            // The first fills what may be on the way, and later ones have nothing kept when they ask.
            for _ in 0..<3 where center.center.isServed(caller) { _ = center.answer(to: caller, bytes: 4 << 20) }
            // Who is not served is told so, once.
            for _ in 0..<100 where center.center.mayRefuse(caller) { _ = center.answer(to: caller, bytes: 200) }
        }
        #expect(center.statistics.answerBytes <= 16 << 20 + 4 << 20 + 300 * 4096)
        #expect(center.center.isServed(client(400)))
        center.identify(client(400), as: 8)
        #expect(center.center.isServed(client(400)))
    }

    @Test("E4: a caller is served until its queued replies reach its own limit, or half of the unused total")
    func servedUpTo() {
        // Each answer that is kept counts 356.
        for (limits, kept) in [
            ([.answerBytesPerClient: 3 * 356], 3), ([.answerBytes: 4 * 356], 2),
        ] as [([Limits.Key: UInt64], Int)] {
            let center = Scenario(limits)
            center.stop(one)
            for _ in 0..<128 { #expect(center.answer(to: one)) }
            for _ in 0..<kept {
                #expect(center.center.isServed(one))
                #expect(!center.answer(to: one))
            }
            #expect(!center.center.isServed(one))
        }
    }

    @Test("E4: discarded replies of an ended channel do not count as unread replies of its client")
    func voidAnswers() throws {
        let center = Scenario([.answerBytesPerClient: 3000])
        center.stop(one)
        while center.center.isServed(one) { _ = center.answer(to: one, bytes: 500) }
        #expect(center.center.mayRefuse(one) && center.center.mayRefuse(two))
        let kept = center.statistics.answerBytes
        // All but the first and the last that are kept.
        let count = Int(kept) / 756
        center.perform { effects in
            center.center.discardAnswers(of: one, Array(1..<count - 1), effects: &effects)
        }
        #expect(center.statistics.answerBytes == 2 * 756 && center.center.isServed(one))
        try center.center.checkInvariants()
        center.goOn(one)
        #expect(center.statistics.answerBytes == 0)
        for _ in 0..<3 { #expect(center.answer(to: one)) }
        try center.center.checkInvariants()
    }

    @Test("E8: a post still matches all observers after most registrations were removed and their memory released")
    func releasedRoom() throws {
        let center = Scenario()
        var observers: [ObserverID] = []
        for number in 0..<2000 {
            observers.append(try center.observe(number.isMultiple(of: 2) ? one : two, "A\(number % 40)"))
        }
        for (number, observer) in observers.enumerated() where number % 40 != 7 {
            try center.remove(observer, of: number.isMultiple(of: 2) ? one : two)
        }
        center.center.releaseMemory()
        try center.center.checkInvariants()
        let late = try center.observe(two, "A7")
        try center.post("A7")
        #expect(center.received(two).count == 1 && center.received(one).isEmpty)
        try center.remove(observers[7], of: two)
        try center.remove(late, of: two)
        #expect(center.removeAll(of: two) == 49)
        try center.center.checkInvariants()
    }

    @Test("E4: with twice as many connections as the limit of clients, no new unregistered peer is served")
    func strangersServed() {
        let center = Scenario([.clients: 2])
        for number in 1...4 {
            #expect(center.center.isServed(client(9)))
            center.stop(client(number))
            _ = center.answer(to: client(number))
        }
        #expect(!center.center.isServed(client(9)))
        #expect(center.center.isServed(client(4)))
    }

    @Test("S1, E4: a client that resumes reading is informed once of its current suspension")
    func suspensionChanges() throws {
        let center = Scenario()
        try center.observe(one, "A")
        center.stop(one)
        for _ in 0..<200 { _ = center.answer(to: one) }
        center.clear()
        for _ in 0..<1001 {
            try center.suspend(one)
            try center.resume(one)
        }
        try center.suspend(one)
        #expect(center.happened(one) == [])
        center.goOn(one)
        #expect(center.happened(one) == [.suspensionChanged(true, .explicit)])
    }

    // MARK: What all together have on their way

    @Test("E4: bytes in flight to all clients are bounded, and a client that reads gets quota beside many that do not")
    func inFlight() throws {
        let center = Scenario([.inFlightBytes: 200_000])
        let hogs = (10..<30).map(client)
        for hog in hogs {
            try center.observe(hog, "A")
            center.stop(hog)
        }
        try center.observe(one, "A")
        try center.post(50, of: "A", bytes: 1000)
        #expect(center.statistics.inFlightBytes <= 200_000)
        #expect(center.objects(one) == (1...50).map(String.init))
        #expect(center.status(client(29))?.flow == .waiting)
        for hog in hogs { center.goOn(hog) }
        for hog in hogs { #expect(center.received(hog).count == 50) }
        #expect(center.statistics.dropped == 0)
        try center.center.checkInvariants()
    }

    @Test("E4: all connections of a process share its in-flight quota")
    func inFlightOfOneProcess() throws {
        let center = Scenario([.inFlightBytes: 200_000])
        for number in 10..<50 {
            try center.observe(client(number), "A")
            center.identify(client(number), as: 7)
            center.stop(client(number))
        }
        try center.post(20, of: "A", bytes: 2000)
        #expect(center.statistics.inFlightBytes <= 100_000)
        // When one of them leaves, another has its room.
        let before = center.received(client(49)).count
        for number in 10..<30 { center.disappear(client(number)) }
        #expect(center.received(client(49)).count > before)
        try center.center.checkInvariants()
    }

    @Test("E4: a process may have as many bytes in flight as remain free, and not a byte more")
    func leftToOthers() {
        for (bytes, goes) in [(500, true), (501, false)] {
            let center = Scenario([.inFlightBytes: 3000])
            center.stop(one)
            #expect(center.answer(to: one, bytes: 1000))
            #expect(center.answer(to: one, bytes: bytes) == goes)
        }
    }

    @Test("E4: a process with no bytes in flight may use all free quota, and not a byte more")
    func freeForNewcomers() {
        for (bytes, goes) in [(2000, true), (2001, false)] {
            let center = Scenario([.inFlightBytes: 3000])
            for client in [one, two] { center.stop(client) }
            #expect(center.answer(to: two, bytes: 1000))
            #expect(center.answer(to: one, bytes: bytes) == goes)
        }
    }

    @Test("E4: above half of the in-flight quota every window is probed at once, until usage falls to a quarter")
    func asksEarly() throws {
        let center = Scenario([.inFlightBytes: 10_000])
        try center.observe(client(20))  // has been asked, and was sent nothing
        for (number, bytes) in [1000, 1000, 1000, 1000, 500, 500].enumerated() {
            center.stop(client(number))
            #expect(center.answer(to: client(number), bytes: bytes))
        }
        #expect(center.probes == [client(20): 1], "it is half, and not more")
        center.stop(client(6))
        #expect(center.answer(to: client(6), bytes: 1))
        #expect(center.probes.count == 1 + 7 && center.probes.values.allSatisfy { $0 == 1 })
        // Whoever is sent something meanwhile is asked behind it, or when it has answered what it was asked before.
        #expect(center.answer(to: client(6), bytes: 1))
        #expect(center.probes[client(6)] == 1)
        center.answer(client(6))
        #expect(center.probes[client(6)] == 2)
        center.answer(client(6))
        #expect(center.probes[client(6)] == 2, "there is nothing more to ask about")
        center.stop(client(7))
        #expect(center.answer(to: client(7), bytes: 500))
        #expect(center.probes[client(7)] == 1)
        for number in [0, 1, 2] { center.answer(client(number)) }
        #expect(center.statistics.inFlightBytes == 2500)
        center.stop(client(8))
        #expect(center.answer(to: client(8), bytes: 1))
        #expect(center.probes[client(8)] == nil)
    }

    @Test(
        "B6, E4: clients that never answer release in-flight quota on a backlog probe when another client needs it",
        arguments: [true, false])
    func silentHolders(hasRead: Bool) {
        let center = Scenario([.inFlightBytes: 10_000])
        for (number, bytes) in [(1, 4800), (2, 2500)] {
            center.stop(client(number))
            #expect(center.answer(to: client(number), bytes: bytes))
        }
        #expect(center.witnesses == [:])
        center.stop(client(3))
        #expect(!center.answer(to: client(3), bytes: 3000), "more than there is")
        #expect(center.witnesses == [client(1): 1, client(2): 1], "it has nothing on its way itself")
        center.backlogProbe(client(2), hasRead: hasRead)
        #expect(center.sentAnswers[client(3)] == 1)
        // Nobody waits any more.
        center.backlogProbe(client(1), hasRead: hasRead)
        #expect(center.witnesses[client(1)] == 1 && center.witnesses[client(2)] == 1)
    }

    @Test("B6, E4: a client that never answers is probed for backlog if it receives while another is blocked on quota")
    func silentGetter() throws {
        let center = Scenario([.inFlightBytes: 10_000])
        try center.observe(one, "A")
        try center.observe(two, "B")
        center.stop(two)
        try center.post("B", bytes: 1000)
        try center.post("A", bytes: 9000)
        #expect(center.names(one) == [], "there is not as much")
        center.stop(three)
        #expect(center.answer(to: three))
        #expect(center.witnesses == [three: 1])
        center.backlogProbe(three, hasRead: true)
        center.goOn(two)
        #expect(center.names(one) == ["A"])
    }

    @Test("B6, E4: a client that never answers is probed for backlog if the quota it gets blocks the next client")
    func silentInTurn() {
        let center = Scenario([.inFlightBytes: 10_000])
        for number in 1...3 { center.stop(client(number)) }
        #expect(center.answer(to: client(1), bytes: 6000))
        for number in 2...3 { #expect(!center.answer(to: client(number), bytes: 5500)) }
        center.backlogProbe(client(1), hasRead: true)
        #expect(center.sentAnswers == [client(2): 1])
        #expect(center.witnesses[client(2)] == 1, "it takes the room of the third")
        center.backlogProbe(client(2), hasRead: true)
        #expect(center.sentAnswers[client(3)] == 1)
    }

    @Test("E4: a client that reads gets in-flight quota that a client with unread messages may not use")
    func readerAmongOthers() throws {
        let center = Scenario([.inFlightBytes: 10_000])
        center.stop(client(1))
        #expect(center.answer(to: client(1), bytes: 5000))
        try center.observe(two, "A")
        try center.observe(three, "A")
        center.stop(three)
        try center.post(2, of: "A", bytes: 2000)
        #expect(center.objects(two) == ["1", "2"])
        #expect(center.objects(three) == ["1"], "of the second it would leave less than it had")
        center.goOn(three)
        #expect(center.objects(three) == ["1", "2"])
    }

    @Test("E4: a notification larger than the in-flight quota is sent alone")
    func largest() throws {
        let center = Scenario([.inFlightBytes: 1000])
        try center.observe(one, "A")
        try center.observe(two, "A")
        try center.post(3, of: "A", bytes: 5000)
        for client in [one, two] { #expect(center.objects(client) == ["1", "2", "3"]) }
    }

    @Test("B6: a client that never answers and is blocked by its own bytes in flight is probed for backlog")
    func silentWithoutRoom() throws {
        let center = Scenario([.inFlightBytes: 20_000])
        center.stop(one)
        try center.observe(one, "A")
        try center.post(100, of: "A", bytes: 1000)
        #expect(center.received(one).count < 20)
        #expect(center.witnesses[one] == 1)
        for _ in 0..<200 where center.received(one).count < 100 { center.backlogProbe(one, hasRead: false) }
        #expect(center.objects(one) == (1...100).map(String.init))
        try center.center.checkInvariants()
    }

    @Test("D8: unregistered peers are probed after a while, and forgotten when they have acknowledged")
    func strangers() throws {
        let center = Scenario()
        for number in 1...5000 { #expect(center.answer(to: client(number))) }
        #expect(center.probes.count >= 3900)
        #expect(center.statistics.inFlightBytes <= 1100 * 100)
        // The same for those of which it is known who is behind them.
        for number in 10_001...15_000 {
            center.identify(client(number), as: UInt32(number))
            #expect(center.answer(to: client(number)))
        }
        #expect(center.forgotten.count >= 3800)
        // And for those of whom the bus could only tell that they had left.
        let before = center.forgotten.count
        for number in 20_001...25_000 {
            center.perform { effects in
                let name = client(number)
                center.center.identify(name, as: .connection(name), effects: &effects)
            }
        }
        #expect(center.forgotten.count >= before + 4900)
        #expect(center.statistics.inFlightBytes <= 1100 * 100)
        try center.center.checkInvariants()
    }

    @Test("D8, R6: a peer with only a retained value is forgotten when it leaves, and its value remains")
    func strangersWithValues() throws {
        let center = Scenario()
        for number in 1...1200 {
            center.identify(client(number), as: UInt32(number))
            try center.post("A", "\(number)", retention: Retention(), from: client(number))
        }
        #expect(center.forgotten.isEmpty && center.departuresWatched.count == 1200)
        // Others come and go beside them, and those are forgotten as ever.
        for number in 2001...5000 {
            center.identify(client(number), as: UInt32(number))
            #expect(center.answer(to: client(number)))
        }
        #expect(center.forgotten.count > 1500, "\(center.forgotten.count)")
        center.clear()
        for number in 1...1200 { center.disappear(client(number)) }
        #expect(center.forgotten.count >= 1200)
        #expect(center.values().count == 1200)
        try center.center.checkInvariants()
    }
}
