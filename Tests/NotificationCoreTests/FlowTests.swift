// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Clients that do not read (`docs/flow-control.md`).
@Suite("Flow control of clients", .limited)
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

    @Test("A4: a new client is probed once, before its first notification")
    func firstProbe() throws {
        try center.observe(one, "A")
        #expect(center.probes[one] == 1)
        try center.observe(one, "B")
        #expect(center.probes[one] == 1)
    }

    @Test("A4: a client is probed after every 64 messages")
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

    @Test("A4: a client is probed after every 64 KiB")
    func bytesPerProbe() throws {
        try center.observe(one, "A")
        try center.post(3, of: "A", bytes: 20_000)
        #expect(center.probes[one] == 1)
        try center.post(1, of: "A", bytes: 20_000)
        #expect(center.probes[one] == 2)
        try center.post(1, of: "A", bytes: 64 << 10)
        #expect(center.probes[one] == 3)
    }

    @Test("A4: a client with two unacknowledged windows receives no more, and later notifications wait in order")
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

    @Test("A4: each answer to a probe opens one window")
    func oneAnswer() throws {
        _ = try stoppedObserver()
        try center.post(500, of: "A")
        center.answer(one)
        #expect(center.received(one).count == 192)
        center.answer(one)
        #expect(center.received(one).count == 256)
        #expect(center.unanswered[one] == 2)
    }

    @Test("A4: unsolicited answers open no more than two windows")
    func strayAnswers() throws {
        _ = try stoppedObserver()
        for _ in 1...10 { center.answer(one) }
        center.answer(two)
        try center.post(500, of: "A")
        #expect(center.received(one).count == 128)
        #expect(center.status(two) == nil)
    }

    @Test(
        "A4: a full window causes neither dropping nor coalescing, for every suspension behavior",
        arguments: SuspensionBehavior.allCases)
    func noPolicy(_ behavior: SuspensionBehavior) throws {
        _ = try stoppedObserver(behavior)
        for _ in 1...300 { try center.post("A") }
        center.goOn(one)
        #expect(center.received(one).map(\.serial) == Array(1...300))
        #expect(center.statistics.coalesced == 0)
    }

    @Test("A4, S1: notifications due before a suspension do not coalesce with notifications held during it")
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

    @Test("A4: an answer to a probe does not deliver held notifications")
    func answerWhileSuspended() throws {
        _ = try stoppedObserver(.hold)
        try center.suspend(one)
        try center.post("A")
        center.answer(one)
        #expect(center.received(one) == [])
    }

    @Test("A4: other clients do not wait for a client that does not read")
    func others() throws {
        _ = try stoppedObserver()
        try center.observe(two, "A")
        try center.post(1000, of: "A")
        #expect(center.received(two).count == 1000)
        #expect(center.received(one).count == 128)
    }

    @Test("A4: a client that has answered once is never probed for socket backlog")
    func provenByItself() throws {
        _ = try stoppedObserver()
        try center.post(1000, of: "A")
        #expect(center.witnesses == [:])
        #expect(center.status(one)?.flow == .waiting)
        center.goOn(one)
        #expect(center.status(one)?.flow == .open)
    }

    // MARK: Clients that never answer

    @Test("B6: a client that never answered is probed for socket backlog when notifications wait for it")
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

    @Test("B6: a client that reads without answering receives all, and still counts as unanswered")
    func readsWithoutAnswering() throws {
        try silentObserver()
        let posts = isQuick ? 2_000 : 10_000
        try center.post(posts, of: "A")
        for _ in 0..<500 where center.received(one).count < posts { center.backlogProbe(one, hasRead: true) }
        #expect(center.objects(one) == (1...posts).map(String.init))
        #expect(center.losses(one) == [])
        #expect(center.status(one)?.flow == .unanswered)
    }

    @Test("B6: a client whose socket backlog is unknown receives one window per probe, without end")
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

    @Test("B6: an unsolicited result of a backlog probe opens no window")
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

    @Test("A4: the first answer ends backlog probes, and answers for windows assumed acknowledged open none")
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

    @Test("A4: a client that never answers loses its oldest notifications when its queue is full, and is informed")
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

    @Test("A4: a client that reconnects has no unacknowledged windows of its earlier connection")
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
