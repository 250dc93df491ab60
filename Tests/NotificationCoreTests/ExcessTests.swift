// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Limits that are lowered below what is in use.
@Suite("Lowered limits", .limited)
struct ExcessTests {
    private let center = Scenario()

    /// Clients of as many processes that stop, with two windows on their way to each.
    private func fill(_ clients: [ClientName], perClient bytes: Int = 100_000) throws {
        for (number, client) in clients.enumerated() {
            center.identify(client, as: UInt32(100 + number))
            try center.observe(client, "Fill")
            center.stop(client)
        }
        for _ in 0..<4 { try center.post("Fill", bytes: bytes) }
    }

    private func lower(_ key: Limits.Key, to value: UInt64) throws {
        center.center.limits[key] = value
        center.perform { effects in center.center.limitsChanged(effects: &effects) }
        try center.center.checkInvariants()
    }

    @Test(
        "E4: processes above a lowered in-flight quota leave space for others, and get no more themselves",
        arguments: [1, 3])
    func inFlight(hogs: Int) throws {
        let hogs = (0..<hogs).map { client(50 + $0) }
        try fill(hogs)
        center.identify(two, as: 2)
        try center.observe(two, "B")
        center.center.limits[.inFlightBytes] = 32_768
        #expect(center.statistics.inFlightBytes > 100_000)
        try center.post("B", bytes: 1000)
        #expect(center.received(two) == [] && !center.answer(to: three), "until it is said that limits have changed")
        try lower(.inFlightBytes, to: 32_768)
        #expect(center.received(two).count == 1 && center.sentAnswers[three] == 1)
        for _ in 0..<20 { try center.post("B", bytes: 1000) }
        #expect(center.received(two).count == 21)
        // They read some, and have more on their way than they may all the same.
        let received = hogs.map { center.received($0).count }
        for hog in hogs { center.answer(hog) }
        #expect(hogs.map { center.received($0).count } == received, "they get nothing more")
        #expect(hogs.allSatisfy { center.status($0)?.queued ?? 0 > 0 })
    }

    @Test(
        "E4: a limit of observers lowered to about the use of one process leaves space for others",
        arguments: [-1, 0, 1, 10, 25, 28])
    func narrow(beyond: Int) throws {
        center.identify(one, as: 1)
        for _ in 0..<175 { try center.observe(one, "A") }
        center.identify(two, as: 2)
        try lower(.observers, to: UInt64(175 + beyond))
        for _ in 0..<10 { try center.observe(two, "A") }
        #expect(throws: CenterError.self) { for _ in 0..<50 { try center.observe(one, "A") } }
        try center.center.checkInvariants()
    }

    @Test("E4: an in-flight quota lowered to just above its use leaves space for other processes")
    func narrowInFlight() throws {
        try fill([client(50)])
        try center.observe(two, "B")
        center.identify(two, as: 2)
        try lower(.inFlightBytes, to: center.statistics.inFlightBytes + 100)
        for _ in 0..<10 { try center.post("B", bytes: 1000) }
        #expect(center.received(two).count == 10)
    }

    @Test("E4: a raised in-flight quota unblocks waiting notifications at once")
    func raised() throws {
        try fill([client(50)])
        try center.observe(two, "B")
        center.identify(two, as: 2)
        center.center.limits[.inFlightBytes] = 4096
        try center.post("B", bytes: 8000)
        try lower(.inFlightBytes, to: 4096)
        #expect(center.received(two) == [], "it is larger than what others leave")
        try lower(.inFlightBytes, to: 32 << 20)
        #expect(center.received(two).count == 1)
    }

    @Test("E4: a process that has fallen below a lowered in-flight quota has its normal share again")
    func givenBack() throws {
        try fill([client(50), client(51), client(52)])
        try lower(.inFlightBytes, to: 65_536)
        for number in 50...52 {
            center.goOn(client(number))
            try center.center.checkInvariants()
        }
        #expect(center.statistics.inFlightBytes == 0)
        center.stop(client(50))
        for _ in 0..<8 { try center.post("Fill", bytes: 10_000) }
        #expect(center.statistics.inFlightBytes <= 65_536)
        #expect(center.status(client(50))?.queued ?? 0 > 0, "half of the limit is all that one gets")
    }

    @Test(
        "E4: an account above a lowered limit gets more when other accounts have freed enough of it", arguments: [2, 3])
    func othersGaveBack(count: Int) throws {
        let all = (0..<count).map { client(50 + $0) }
        for (number, one) in all.enumerated() {
            center.identify(one, as: UInt32(100 + number))
            for _ in 0..<200 { try center.observe(one, "A") }
        }
        try lower(.observers, to: 256)
        #expect(throws: CenterError.self) { try center.observe(all[0], "A") }
        for one in all.dropFirst() { center.disappear(one) }
        try center.center.checkInvariants()
        for _ in 0..<20 { try center.observe(all[0], "A") }
        #expect(center.statistics.observers == 220)
    }

    @Test("E4: connections identified as one process after a lowered limit leave space like one process")
    func knownLater() throws {
        let hogs = (0..<8).map { client(50 + $0) }
        for hog in hogs { for _ in 0..<20 { try center.observe(hog, "A") } }
        for _ in 0..<40 { try center.observe(two, "A") }
        try lower(.observers, to: 164)
        for hog in hogs { center.identify(hog, as: 100) }
        center.identify(two, as: 2)
        try center.center.checkInvariants()
        for _ in 0..<10 { try center.observe(two, "A") }
        #expect(throws: CenterError.self) { try center.observe(hogs[0], "A") }
        for hog in hogs.dropFirst() { center.disappear(hog) }
        for _ in 0..<10 { try center.observe(hogs[0], "A") }
        try center.center.checkInvariants()
    }

    @Test(
        "E4: a process that connects again and again gets no more than its share, also with a lowered limit",
        arguments: [256, 1000])
    func manyConnections(_ usage: Int) throws {
        for number in 0..<usage / 125 {
            center.identify(client(10 + number), as: UInt32(10 + number))
            for _ in 0..<125 { try center.observe(client(10 + number), "A") }
        }
        try lower(.observers, to: 256)
        let before = center.statistics.observers
        // Each has something before somebody says that it is that process's.
        for number in 100..<160 {
            for _ in 0..<40 { _ = try? center.observe(client(number), "A") }
            center.identify(client(number), as: 1)
            _ = try? center.observe(client(200), "A")
        }
        try center.center.checkInvariants()
        #expect(center.statistics.observers <= before + 256)
    }

    @Test(
        "E3, E4: a process whose connections are identified only after a restart leaves space for others",
        arguments: [-20, 4])
    func restarted(beyond: Int) throws {
        let hogs = (0..<8).map { client(50 + $0) }
        for hog in hogs { for _ in 0..<20 { try center.observe(hog, "A") } }
        let next = Scenario()
        center.center.forEachRememberedChange { _ = next.center.restore($0) }
        next.center.limits[.observers] = UInt64(160 + beyond)
        next.finishRestoring()
        for hog in hogs { next.identify(hog, as: 100) }
        try next.center.checkInvariants()
        for _ in 0..<(160 + beyond) / 8 - 2 { try next.observe(two, "A") }
        #expect(throws: CenterError.self) { try next.observe(hogs[0], "A") }
    }

    /// Another service, which takes up from the log of this one. It writes that anew before it looks at anything.
    private func restart(_ before: Scenario, log: inout [Change], limit: UInt64) throws -> Scenario {
        let next = Scenario()
        next.center.remembersChanges = true
        // The limits are known before anything comes back.
        next.center.limits[.observers] = limit
        next.perform { effects in next.center.limitsChanged(effects: &effects) }
        for change in log + before.changes { _ = next.center.restore(change) }
        log = []
        next.center.forEachRememberedChange { log.append($0) }
        next.finishRestoring()
        try next.center.checkInvariants()
        return next
    }

    @Test(
        "E3, E4: restarts free no further space under a lowered limit, however connections are identified",
        arguments: [1, 4, 30])
    func restartedAgain(perProcess: Int) throws {
        let hogs = (0..<30).map { client(50 + $0) }
        func identify(in center: Scenario) {
            for (number, hog) in hogs.enumerated() { center.identify(hog, as: UInt32(100 + number / perProcess)) }
        }
        center.center.remembersChanges = true
        for hog in hogs { for _ in 0..<10 { try center.observe(hog, "A") } }
        identify(in: center)
        var log: [Change] = []
        try lower(.observers, to: 128)
        var (service, count, newcomers) = (center, 300, 0)
        for round in 0..<5 {
            for _ in 0..<20 {
                newcomers += 1
                service.identify(client(1000 + newcomers), as: UInt32(1000 + newcomers))
                _ = try? service.observe(client(1000 + newcomers), "A")
            }
            #expect(service.statistics.observers > 300 && service.statistics.observers <= 316)
            #expect(round == 0 || service.statistics.observers == count, "nobody gave anything back")
            count = Int(service.statistics.observers)
            service = try restart(service, log: &log, limit: 128)
            if round % 2 == 0 { identify(in: service) }
            #expect(throws: CenterError.self) { try service.observe(hogs[0], "A") }
        }
        // They give back, and it is as it would have been without a restart.
        identify(in: service)
        for hog in hogs.dropFirst(3) { service.disappear(hog) }
        try service.center.checkInvariants()
        #expect(throws: Never.self) { for _ in 0..<30 { try service.observe(two, "A") } }
        // A limit that is lowered meanwhile leaves room once.
        service = try restart(service, log: &log, limit: 64)
        service.identify(three, as: 3)
        #expect(throws: Never.self) { for _ in 0..<7 { try service.observe(three, "A") } }
    }

    private func excess(of service: Scenario) -> [Excess] {
        var excess: [Excess] = []
        service.center.forEachRememberedChange { if case .excess(.observers, let one) = $0 { excess.append(one) } }
        return excess
    }

    @Test("E3, E4: observers above a lowered limit that were removed before a crash do not count after it")
    func remembered() throws {
        center.center.remembersChanges = true
        let hogs = (0..<4).map { client(50 + $0) }
        for (number, hog) in hogs.enumerated() {
            center.identify(hog, as: UInt32(100 + number))
            for _ in 0..<50 { try center.observe(hog, "A") }
        }
        try lower(.observers, to: 80)
        center.identify(two, as: 2)
        for _ in 0..<8 { try center.observe(two, "A") }
        for number in 0..<4 { try center.removeEveryObserver(of: hogs[number], atMost: 10) }
        let changes = center.changes
        let next = Scenario()
        for change in changes { _ = next.center.restore(change) }
        next.center.limits[.observers] = 80
        next.finishRestoring()
        try next.center.checkInvariants()
        #expect(excess(of: next) == [Excess(amount: 90, limit: 80)])
        #expect(excess(of: center) == [Excess(amount: 90, limit: 80)])
    }

    @Test(
        "E4: a small lowered limit leaves space for at least one observer of another process",
        arguments: [1, 2, 7, 8, 16, 63])
    func small(limit: Int) throws {
        for number in 0..<60 {
            center.identify(client(50 + number), as: UInt32(100 + number))
            try center.observe(client(50 + number), "A")
            try center.observe(client(50 + number), "B")
        }
        try lower(.observers, to: UInt64(limit))
        center.identify(two, as: 2)
        for _ in 0..<max(1, limit / 8) { try center.observe(two, "A") }
        #expect(throws: CenterError.self) { try center.observe(client(50), "A") }
        for number in 0..<60 { center.disappear(client(50 + number)) }
        try center.center.checkInvariants()
        for _ in 0..<limit - max(1, limit / 8) { try center.observe(two, "A") }
        #expect(throws: CenterError.self) { try center.observe(two, "A") }
    }

    @Test("E4: callers that together exceed a lowered limit of reply bytes are not served until others leave")
    func answersOfSome() throws {
        let hogs = [one, two, three]
        for (number, hog) in hogs.enumerated() {
            center.identify(hog, as: UInt32(100 + number))
            center.stop(hog)
            for _ in 0..<1000 { _ = center.answer(to: hog, bytes: 1000) }
        }
        try lower(.answerBytes, to: UInt64(center.statistics.answerBytes) * 5 / 6)
        #expect(hogs.allSatisfy { !center.center.isServed($0) })
        center.disappear(two)
        center.disappear(three)
        #expect(center.center.isServed(one))
        try center.center.checkInvariants()
    }

    @Test("E4: the excess of a connection moves with it to another account")
    func identifiedLater() throws {
        try fill([client(50)])
        try lower(.inFlightBytes, to: 32_768)
        center.identify(client(50), as: 7)
        try center.center.checkInvariants()
        #expect(center.answer(to: three, bytes: 1000), "what does not count has moved with it")
        #expect(center.statistics.inFlightBytes > 32_768)
        center.disappear(client(50))
        try center.center.checkInvariants()
        #expect(center.statistics.inFlightBytes == 0)
    }

    @Test("E4: a caller above a lowered limit of reply bytes does not keep others from being served")
    func answers() throws {
        center.identify(one, as: 1)
        center.stop(one)
        for _ in 0..<1000 { _ = center.answer(to: one, bytes: 1000) }
        center.identify(two, as: 2)
        center.stop(two)
        for _ in 0..<200 { _ = center.answer(to: two) }
        center.center.limits[.answerBytes] = 500_000
        #expect(!center.center.isServed(two))
        try lower(.answerBytes, to: 500_000)
        #expect(center.center.isServed(two) && !center.center.isServed(one))
        center.goOn(one)
        center.goOn(two)
        try center.center.checkInvariants()
        #expect(center.statistics.answerBytes == 0)
    }

    @Test("E4: a client above a lowered limit of observers leaves space for the observers of others")
    func observers() throws {
        center.identify(one, as: 1)
        for _ in 0..<200 { try center.observe(one, "A") }
        center.identify(two, as: 2)
        try lower(.observers, to: 80)
        #expect(throws: CenterError.self) { try center.observe(one, "A") }
        for _ in 0..<8 { try center.observe(two, "A") }
        try center.removeEveryObserver(of: one)
        try center.center.checkInvariants()
        for _ in 0..<60 { try center.observe(two, "A") }
        #expect(center.statistics.observers == 68)
    }
}

extension Scenario {
    fileprivate func removeEveryObserver(of client: ClientName, atMost most: Int = .max) throws {
        for registration in (center.registrations(of: client) ?? []).prefix(most) {
            try remove(registration.id, of: client)
        }
    }
}
