// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Clients that do not read (`docs/flow-control.md`).
@Suite("Flow", .limited)
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

    @Test("A4: of a client that answered once nobody else is asked, however long it stops")
    func provenByItself() throws {
        _ = try stoppedObserver()
        try center.post(1000, of: "A")
        #expect(center.witnesses == [:])
        #expect(center.status(one)?.flow == .waiting)
        center.goOn(one)
        #expect(center.status(one)?.flow == .open)
    }

    // MARK: Clients that never answer

    @Test("B6: of a client that never answered it is asked elsewhere whether it reads, when something waits for it")
    func asksElsewhere() throws {
        try silentObserver()
        try center.post(64, of: "A")
        #expect(center.received(one).count == 64)
        #expect(center.witnesses[one] == nil, "nothing waits")
        #expect(center.status(one)?.flow == .waiting)
        try center.post(500, of: "A")
        #expect(center.received(one).count == 64)
        #expect(center.witnesses[one] == 1)
        #expect(center.status(one)?.flow == .unanswered)
        #expect(center.status(one)?.unconfirmed == 64)
    }

    @Test("B6: one that reads all goes on for ever, and is never taken for one that answered")
    func readsWithoutAnswering() throws {
        try silentObserver()
        let posts = isQuick ? 2_000 : 10_000
        try center.post(posts, of: "A")
        for _ in 0..<500 where center.received(one).count < posts { center.backlogProbe(one, hasRead: true) }
        #expect(center.objects(one) == (1...posts).map(String.init))
        #expect(center.losses(one) == [])
        #expect(center.status(one)?.flow == .unanswered)
    }

    @Test("B6: where nothing tells, one window passes at a time, for ever")
    func nothingTells() throws {
        try silentObserver()
        let windows = isQuick ? 40 : 200
        try center.post(64 * windows, of: "A")
        for passed in 2...windows {
            center.backlogProbe(one, hasRead: false)
            #expect(center.received(one).count == 64 * passed)
        }
        #expect(center.objects(one) == (1...64 * windows).map(String.init))
    }

    @Test("B6: a finding that was not asked for opens nothing")
    func strayFindings() throws {
        try silentObserver()
        center.backlogProbe(one, hasRead: true)
        try center.post(500, of: "A")
        center.backlogProbe(one, hasRead: true)
        let received = center.received(one).count
        #expect(received == 192)
        _ = try center.observe(two, "A")
        center.stop(two)
        center.backlogProbe(two, hasRead: true)
        try center.post(500, of: "A")
        center.backlogProbe(two, hasRead: true)
        #expect(center.received(two).count == 128, "it answered, so that only answers count")
    }

    @Test("A4: the first answer ends the asking; the answers of what was taken for read come first and open nothing")
    func lateAnswers() throws {
        try silentObserver()
        try center.post(1000, of: "A")
        center.backlogProbe(one, hasRead: false)
        center.backlogProbe(one, hasRead: false)
        #expect(center.received(one).count == 192)
        center.answer(one)
        center.answer(one)
        #expect(center.received(one).count == 192, "two of the four probes had been taken for answered")
        center.backlogProbe(one, hasRead: false)
        #expect(center.received(one).count == 192, "a client that answers is asked itself")
        center.answer(one)
        #expect(center.received(one).count == 256)
        #expect(center.status(one)?.flow == .waiting)
    }

    @Test("A4: a client that never answers loses the oldest when its queue is full, and is told")
    func silentOverflow() throws {
        center.center.limits[.queuedPerClient] = 10
        try silentObserver()
        try center.post(100, of: "A")
        #expect(center.received(one).count == 64)
        #expect(center.status(one)?.queued == 10)
        center.backlogProbe(one, hasRead: true)
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
