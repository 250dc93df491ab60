import NotificationCore
import Testing

/// Clients that do not read (`docs/flow-control.md`).
@Suite("Flow")
struct FlowTests {
    let center = Scenario()

    /// A client that answered when it registered, and then stopped.
    private func stoppedObserver(_ behavior: SuspensionBehavior = .coalesce) throws -> ObserverID {
        let observer = try center.observe(one, "A", "", behavior)
        center.stop(one)
        return observer
    }

    /// A client that never answered anything.
    private func silentObserver() throws {
        center.stop(one)
        try center.observe(one, "A")
    }

    // MARK: The window

    @Test("A4: a new client is asked once, before it gets anything")
    func firstProbe() throws {
        try center.observe(one, "A")
        #expect(center.probes[one] == 1)
        try center.observe(one, "B")
        #expect(center.probes[one] == 1)
    }

    @Test("A4: a client is asked after every 64 messages")
    func messagesPerProbe() throws {
        try center.observe(one, "A")
        try center.post(63, of: "A")
        #expect(center.probes[one] == 1)
        try center.post(1, of: "A")
        #expect(center.probes[one] == 2)
        try center.post(63, of: "A")
        #expect(center.probes[one] == 2)
        try center.post(1, of: "A")
        #expect(center.probes[one] == 3)
    }

    @Test("A4: a client is asked after every 64 KiB")
    func bytesPerProbe() throws {
        try center.observe(one, "A")
        try center.post(3, of: "A", bytes: 20_000)
        #expect(center.probes[one] == 1)
        try center.post(1, of: "A", bytes: 20_000)
        #expect(center.probes[one] == 2)
        try center.post(1, of: "A", bytes: 64 << 10)
        #expect(center.probes[one] == 3)
    }

    @Test("A4: with two windows unanswered nothing more is sent, and what comes waits in its order")
    func closes() throws {
        _ = try stoppedObserver()
        try center.post(200, of: "A")
        #expect(center.received(one).count == 128)
        #expect(center.probes[one] == 3)
        #expect(center.status(one)?.queued == 72)
        #expect(center.status(one)?.isSuspended == false, "flow is not suspension")
        center.goOn(one)
        #expect(center.objects(one) == (1...200).map(String.init))
        #expect(center.status(one)?.queued == 0)
    }

    @Test("A4: large messages close the window sooner")
    func closesByBytes() throws {
        _ = try stoppedObserver()
        try center.post(20, of: "A", bytes: 40_000)
        #expect(center.received(one).count == 4)
        #expect(center.status(one)?.queued == 16)
    }

    @Test("A4: one answer opens one window")
    func oneAnswer() throws {
        _ = try stoppedObserver()
        try center.post(500, of: "A")
        center.answer(one)
        #expect(center.received(one).count == 192)
        center.answer(one)
        #expect(center.received(one).count == 256)
        #expect(center.unanswered[one] == 2)
    }

    @Test("A4: answers that were not asked for open nothing beyond two windows")
    func strayAnswers() throws {
        _ = try stoppedObserver()
        for _ in 1...10 { center.answer(one) }
        center.answer(two)
        try center.post(500, of: "A")
        #expect(center.received(one).count == 128)
        #expect(center.status(two) == nil)
    }

    @Test("A4: flow triggers neither drop nor coalesce", arguments: SuspensionBehavior.allCases)
    func noPolicy(_ behavior: SuspensionBehavior) throws {
        _ = try stoppedObserver(behavior)
        for _ in 1...300 { try center.post("A") }
        center.goOn(one)
        #expect(center.received(one).map(\.serial) == Array(1...300))
        #expect(center.statistics.coalesced == 0)
    }

    @Test("A4, S1: what waited when the client was suspended is not coalesced with what is held")
    func suspendedWhileStopped() throws {
        _ = try stoppedObserver(.coalesce)
        for _ in 1...130 { try center.post("A") }
        try center.suspend(one)
        for _ in 1...3 { try center.post("A") }
        #expect(center.status(one)?.queued == 3)
        center.goOn(one)
        #expect(center.received(one).map(\.serial) == Array(1...130))
        try center.resume(one)
        #expect(center.received(one).last?.serial == 133)
    }

    @Test("A4: an answer does not deliver what is held")
    func answerWhileSuspended() throws {
        _ = try stoppedObserver(.hold)
        try center.suspend(one)
        try center.post("A")
        center.answer(one)
        #expect(center.received(one) == [])
    }

    @Test("A4: nothing else waits for a client that stopped")
    func others() throws {
        _ = try stoppedObserver()
        try center.observe(two, "A")
        try center.post(1000, of: "A")
        #expect(center.received(two).count == 1000)
        #expect(center.received(one).count == 128)
    }

    @Test("A4: a client that answered once has no timer, however long it stops")
    func noTimerForTheProven() throws {
        _ = try stoppedObserver()
        try center.post(1000, of: "A")
        #expect(center.timers == [:])
    }

    // MARK: Clients that never answer

    @Test("A4: the probes of a client that never answered expire one at a time")
    func expiry() throws {
        try silentObserver()
        try center.post(63, of: "A")
        #expect(center.timers[one] == nil, "the window is open")
        try center.post(500, of: "A")
        #expect(center.received(one).count == 64)
        #expect(center.timers[one] == [1])
        center.endTimer(one)
        #expect(center.received(one).count == 128)
        center.endTimer(one)
        #expect(center.received(one).count == 192)
        #expect(center.received(one).map(\.serial) == Array(1...192))
    }

    @Test("A4: the waits grow up to a minute, and end at a cap")
    func waitsGrow() throws {
        try silentObserver()
        try center.post(64 * 70, of: "A")
        var ended = 0
        while ended < (center.timers[one]?.count ?? 0), ended < 1000 {
            ended += 1
            center.endTimer(one)
        }
        #expect(ended == 64)
        #expect(center.timers[one]?.prefix(8) == [1, 2, 4, 8, 16, 32, 64, 64])
        #expect(center.timers[one]?.dropFirst(8).allSatisfy { $0 == 64 } == true)
        #expect(center.received(one).count == 64 * 65)
        #expect(center.status(one)?.queued == 64 * 5)
        #expect(center.status(one)?.isSuspended == false)
    }

    @Test("A4: a sign of life starts the waits and the budget anew")
    func signOfLife() throws {
        try silentObserver()
        try center.post(64 * 70, of: "A")
        while (center.timers[one]?.count ?? 0) < 64 { center.endTimer(one) }
        center.endTimer(one)
        let before = center.received(one).count
        #expect(center.timers[one]?.count == 64, "the budget is used up")
        center.showLife(one)
        #expect(center.timers[one]?.suffix(1) == [1])
        center.endTimer(one)
        #expect(center.received(one).count == before + 64)
        #expect(center.timers[one]?.suffix(1) == [2])
    }

    @Test("A4: a sign of life does not start a second timer")
    func signOfLifeWhileWaiting() throws {
        try silentObserver()
        try center.post(100, of: "A")
        center.showLife(one)
        center.showLife(one)
        #expect(center.timers[one] == [1])
        center.showLife(two)
        #expect(center.status(two) == nil)
    }

    @Test("A4: a sign of life is nothing to a client that has answered")
    func signOfLifeOfTheProven() throws {
        _ = try stoppedObserver()
        try center.post(500, of: "A")
        center.showLife(one)
        #expect(center.timers == [:])
        #expect(center.received(one).count == 128)
    }

    @Test("A4: the first answer ends the waits; the answers of what expired come first and open nothing")
    func lateAnswers() throws {
        try silentObserver()
        try center.post(1000, of: "A")
        center.endTimer(one)
        center.endTimer(one)
        #expect(center.received(one).count == 192)
        #expect(center.timers[one] == [1, 2, 4])
        center.answer(one)
        center.answer(one)
        #expect(center.received(one).count == 192, "two of the four probes had expired")
        center.endTimer(one)
        #expect(center.received(one).count == 192, "a client that answers has no expiring probes")
        #expect(center.timers[one] == [1, 2, 4])
        center.answer(one)
        #expect(center.received(one).count == 256)
    }

    @Test("A4: a client that never answers loses the oldest when its budget is used up, and is told")
    func silentOverflow() throws {
        center.center.limits[.queuedPerClient] = 10
        try silentObserver()
        try center.post(100, of: "A")
        #expect(center.received(one).count == 64)
        #expect(center.status(one)?.queued == 10)
        center.endTimer(one)
        #expect(center.losses(one) == [26])
        #expect(center.objects(one).suffix(10) == (91...100).map(String.init)[...])
        #expect(center.sequences(one).last == 100)
    }

    @Test("A4: a client that comes again has nothing of what it owed before")
    func comingAgain() throws {
        _ = try stoppedObserver()
        try center.post(500, of: "A")
        center.disappear(one)
        center.goOn(one)
        center.clear()
        try center.observe(one, "A")
        try center.post(500, of: "A")
        #expect(center.sequences(one) == Array(1...500))
    }
}
