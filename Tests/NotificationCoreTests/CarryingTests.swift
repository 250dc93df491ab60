// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What the bus did not carry, or perhaps not (`docs/flow-control.md`).
@Suite("Losses on the bus, and repetition of control signals", .limited)
struct CarryingTests {
    let center = Scenario()

    private func dropped(_ client: ClientName) -> [Scenario.Happening] {
        center.happened(client).filter { if case .dropped = $0 { true } else { false } }
    }

    private func sequences(_ client: ClientName) -> [UInt64] {
        center.happened(client).compactMap { if case .delivered(_, _, _, let sequence) = $0 { sequence } else { nil } }
    }

    @Test("E5: after a refused signal the client is probed, and gets the report of the loss before newer notifications")
    func refusedSignal() throws {
        try center.observe(one, "A")
        center.stop(one)
        try center.post(3, of: "A")
        #expect(center.probes[one] == 1)
        center.refuseDelivery(to: one)
        #expect(center.probes[one] == 2)
        try center.post(2, of: "A")
        #expect(sequences(one) == [1, 2, 3] && dropped(one).isEmpty)
        center.answer(one)
        #expect(dropped(one) == [.dropped(1, of: [], .busLimits)])
        #expect(sequences(one) == [1, 2, 3, 4, 5], "the numbers do not go on by it")
        #expect(center.statistics.dropped == 1)
    }

    @Test("E3, E5: the recovery log keeps a possible loss until it is reported")
    func remembered() throws {
        center.center.remembersChanges = true
        try center.observe(one, "A")
        center.stop(one)
        try center.post(3, of: "A")
        center.refuseDelivery(to: one)
        center.refuseDelivery(to: one)
        #expect(center.possibleLoss[one] == [1, 2])
        center.answer(one)
        center.answer(one)
        #expect(dropped(one) == [.dropped(2, of: [], .busLimits)])
        #expect(center.possibleLoss[one] == [1, 2, 0])
    }

    @Test("E5: after a refused probe all unacknowledged notifications count as lost, once, unless already counted")
    func refusedProbe() throws {
        try center.observe(one, "A")
        center.stop(one)
        try center.post(70, of: "A")
        center.refuseProbe(of: one)
        center.refuseProbe(of: one)
        // The answer to what was asked before the refusal says nothing.
        center.answer(one)
        #expect(dropped(one).isEmpty)
        center.answer(one)
        #expect(dropped(one) == [.dropped(70, of: [], .busLimits)])
        try center.post(1, of: "A")
        #expect(sequences(one).last == 71)
        center.refuseProbe(of: one, isCounted: true)
        center.answer(one)
        #expect(dropped(one).count == 1)
    }

    @Test("E5: a refused probe does not block a client that never answers, because a backlog probe unblocks it")
    func silent() throws {
        center.stop(one)
        try center.observe(one, "A")
        try center.post(1, of: "A")
        center.refuseProbe(of: one)
        #expect(center.witnesses[one] == 1)
        try center.post(1, of: "A")
        #expect(sequences(one) == [1])
        center.backlogProbe(one, hasRead: true)
        #expect(dropped(one) == [.dropped(1, of: [], .busLimits)])
        #expect(sequences(one) == [1, 2])
    }

    @Test("E5: the losses of a closed connection are counted once, and are at most the unacknowledged notifications")
    func cut() throws {
        try center.observe(one, "A")
        center.stop(one)
        try center.post(5, of: "A")
        center.cutDeliveries(to: one, atMost: 3)
        center.cutDeliveries(to: one, atMost: 100)
        #expect(center.overflows[one] == [.busDisconnected], "one log line")
        #expect(center.status(one)?.dropped == 3 && center.statistics.dropped == 3)
        center.answer(one)
        #expect(dropped(one) == [.dropped(3, of: [], .busDisconnected)])
    }

    /// Two were lost to a client that did not read, and it has just been told so.
    private func withLoss() throws -> Scenario {
        let center = Scenario([.queuedPerClient: 3])
        let observer = try center.observe(one, "A")
        center.stop(one)
        try center.post(133, of: "A")
        center.answer(one)
        #expect(center.happened(one).contains(.dropped(2, of: [observer], .queueFull)))
        #expect(center.sequences(one).last == 133)
        #expect(center.statistics.dropped == 2)
        center.clear()
        return center
    }

    @Test("E5, S4: a Dropped signal lost with the connection is repeated, and its losses are not counted again")
    func cutWord() throws {
        let center = try withLoss()
        center.cutDeliveries(to: one, atMost: 3, losses: 2)
        center.answer(one)
        #expect(center.happened(one) == [.dropped(5, of: [], .busDisconnected)])
        #expect(center.statistics.dropped == 5, "three notifications more")
        center.clear()
        center.cutDeliveries(to: one, atMost: 0, losses: 5)
        center.answer(one)
        #expect(center.happened(one) == [.dropped(5, of: [], .busDisconnected)], "that word, too")
        #expect(center.statistics.dropped == 5)
    }

    @Test("E5, S4: a Dropped signal in an unacknowledged window is sent again after its connection ended")
    func cutWordInProbedWindow() throws {
        let center = try withLoss()
        // With the signal and the three notifications behind it the window is full.
        try center.post(60, of: "A")
        #expect(center.unanswered[one] == 2)
        center.cutDeliveries(to: one, atMost: 0, losses: 2)
        center.answer(one)
        #expect(center.losses(one) == [2])
        #expect(center.statistics.dropped == 2)
    }

    @Test("E5, S4: a Dropped signal that the bus refused or silently discarded is repeated")
    func refusedWord() throws {
        let center = try withLoss()
        center.refuseDelivery(to: one, losses: 2)
        for _ in 0..<3 { center.answer(one) }
        #expect(center.happened(one) == [.dropped(2, of: [], .busLimits)])
        #expect(center.statistics.dropped == 2)

        let other = try withLoss()
        other.refuseProbe(of: one)
        for _ in 0..<3 { other.answer(one) }
        // All that was behind the probe that has been answered: one window, the word, and three.
        #expect(other.happened(one) == [.dropped(69, of: [], .busLimits)])
        #expect(other.statistics.dropped == 69)
    }

    @Test("E5, S4: a refused Dropped signal about one loss is repeated for one loss")
    func refusedSignalOfOneLoss() throws {
        try center.observe(one, "A")
        center.stop(one)
        try center.post("A")
        center.refuseDelivery(to: one)
        center.goOn(one)
        center.refuseDelivery(to: one, losses: 1)
        for _ in 0..<2 { center.answer(one) }
        #expect(dropped(one) == [.dropped(1, of: [], .busLimits), .dropped(1, of: [], .busLimits)])
        #expect(center.statistics.dropped == 1)
    }

    @Test("E5: the observer numbers of a notification count in its size on the bus")
    func sizeWithObservers() throws {
        for _ in 0..<10 { try center.observe(one, "A") }
        try center.post("A")
        let size = try #require(center.deliveries(one).first).notification.byteCount + 10 * 8
        for (limit, losses) in [(size, 1), (size + 1, 0)] {
            center.clear()
            center.center.maxBytes = limit
            try center.post("A")
            #expect(dropped(one).count == losses && center.received(one).count == 1 - losses)
        }
    }

    @Test("E5: a notification too large for the bus is reported as lost at once, and keeps its sequence number")
    func tooLarge() throws {
        let id = try center.observe(one, "A")
        center.stop(one)
        center.center.maxBytes = 2000
        try center.post("A", bytes: 1000)
        try center.post("A", bytes: 2000)
        try center.post("A", bytes: 1000)
        #expect(
            center.happened(one) == [
                .delivered("A", to: [id], sequence: 1), .dropped(1, of: [], .busLimits),
                .delivered("A", to: [id], sequence: 3),
            ])
        #expect(center.status(one)?.delivered == 2 && center.status(one)?.dropped == 1)
        #expect(center.statistics.delivered == 2 && center.statistics.dropped == 1)
        // The word may get lost as any other.
        center.cutDeliveries(to: one, atMost: 2, losses: 1)
        center.answer(one)
        #expect(dropped(one).last == .dropped(3, of: [], .busDisconnected))
    }

    /// The center that takes over when the bus has closed the connection.
    private func nextCenter() -> DistributedCenter {
        var effects: [Effect] = []
        center.center.connectionEnded(effects: &effects)
        let next = DistributedCenter()
        next.takeOver(center.center)
        return next
    }

    @Test("E5: the center of the next connection takes over all state, including scheduled notifications")
    func takesOver() throws {
        let id = try center.observe(one, "A", "", .hold)
        try center.observe(two, "A")
        try center.suspend(one)
        try center.post(3, of: "A")
        center.isBusy = true
        try center.post(2, of: "A")
        center.cutDeliveries(to: two, atMost: 0)
        let next = nextCenter()
        try next.checkInvariants()
        #expect(next.statistics.clients == 2 && next.statistics.queued == center.statistics.queued)
        #expect(next.statistics.posted == 5)
        var effects: [Effect] = []
        next.finishRestoring(effects: &effects)
        next.sendAllReady(effects: &effects)
        let delivered = effects.compactMap { if case .deliver(let delivery) = $0 { delivery } else { nil } }
        #expect(delivered.map(\.client) == [two, two])
        #expect(delivered.map(\.sequence) == [4, 5])
        #expect(try next.addObserver(of: one, name: "B", object: "", options: .init(), effects: &effects) > id)
    }

    @Test("E3: an orderly end sends no more notifications, and the next service delivers all due ones without a loss")
    func endsInOrder() throws {
        center.center.remembersChanges = true
        try center.observe(one, "A")
        try center.observe(two, "A")
        center.stop(two)
        center.isBusy = true
        try center.post(200, of: "A")
        center.isBusy = false
        let before = center.deliveries(one).count
        var effects: [Effect] = []
        center.center.beginEnding(effects: &effects)
        // Somebody comes meanwhile, and somebody answers.
        _ = try center.center.addObserver(of: three, name: "A", object: "", options: .init(), effects: &effects)
        center.center.clientAnswered(two, effects: &effects)
        _ = try center.center.post(
            name: "A", object: "last", userInfo: Tower.Payload(byteCount: 1), from: ":1.0", effects: &effects)
        #expect(!center.center.isAnythingReady, "nobody waits for a turn")
        var changes = center.changes
        for effect in effects {
            switch effect {
            case .remember(let change): changes.append(change)
            case .deliver, .deliverTogether, .dropped: Issue.record("\(effect)")
            default: break
            }
        }
        let next = Scenario()
        for change in changes { #expect(next.center.restore(change)) }
        next.center.restoreNumbers(
            lastSerial: center.center.lastSerial, lastObserver: center.center.lastObserver)
        next.finishRestoring()
        for (client, count) in [(one, 201 - before), (two, 201 - center.deliveries(two).count), (three, 1)] {
            #expect(
                next.deliveries(client).count == count && next.deliveries(client).last?.notification.object == "last")
            #expect(next.losses(client).isEmpty)
        }
    }

    @Test("E5: the center of the next connection takes over all counts, and reports unreported losses")
    func takesOverCounts() throws {
        try center.observe(one, "A")
        try center.observe(two, "B")
        try center.suspend(two)
        try center.post(3, of: "A")
        try center.post("nobody")
        for _ in 0..<3 { try center.post("B") }
        try center.lose(2, "A")
        center.center.countLostPosts(5)
        center.cutDeliveries(to: one, atMost: 2)
        let before = center.statistics
        #expect(before.posted == 9 && before.unmatched == 1 && before.delivered == 3 && before.dropped == 4)
        #expect(before.coalesced == 2 && before.lostPosts == 5)
        let next = DistributedCenter()
        next.takeOver(center.center)
        let after = next.statistics
        #expect(after.posted == before.posted && after.unmatched == before.unmatched)
        #expect(after.delivered == before.delivered && after.dropped == before.dropped)
        #expect(after.coalesced == before.coalesced && after.lostPosts == before.lostPosts)
        var effects: [Effect] = []
        next.finishRestoring(effects: &effects)
        let told = effects.compactMap { effect -> [UInt64]? in
            if case .dropped(one, let count, [], .busDisconnected, let sequence) = effect {
                [count, sequence]
            } else {
                nil
            }
        }
        #expect(told == [[2, 5]])
        try next.checkInvariants()
    }

    @Test("S4: only losses on the bus, in a channel or at a restart are reported as an upper bound")
    func bounds() {
        let bounds = DropReason.allCases.filter(\.isBound)
        #expect(Set(bounds) == [.busLimits, .busDisconnected, .channelEnded, .serviceRestarted])
    }

    @Test("E5, S5: the next connection repeats a suspension notice that was not acknowledged")
    func suspensionCut() throws {
        try center.observe(one, "A")
        try center.observe(two, "A")
        try center.suspend(one)
        // With this the window is full, and the client confirms it.
        try center.observe(three, "C")
        try center.post(63, of: "C")
        try center.suspend(three)
        let next = nextCenter()
        var effects: [Effect] = []
        next.finishRestoring(effects: &effects)
        let told = effects.compactMap { effect -> ClientName? in
            if case .suspensionChanged(let client, _, _) = effect { client } else { nil }
        }
        #expect(told == [one])
        try next.checkInvariants()
    }

    @Test(
        "E3, E5: the next process sends a confirmed suspension again when the channel that carried it is lost",
        arguments: [false, true])
    func suspensionCutWithChannel(isCut: Bool) throws {
        center.center.remembersChanges = true
        try center.observe(one, "A")
        // With the suspension the window is full, and the client confirms it.
        try center.post(63, of: "A")
        try center.suspend(one)
        var effects: [Effect] = []
        if isCut { center.center.controlSignalsLost(one, revoked: [], effects: &effects) }
        let cut = effects.compactMap { if case .remember(let change) = $0 { change } else { nil } }
        let next = DistributedCenter()
        for change in center.changes + cut { _ = next.restore(change) }
        effects = []
        next.finishRestoring(effects: &effects)
        let told = effects.compactMap { effect -> Bool? in
            if case .suspensionChanged(one, let isSuspended, _) = effect { isSuspended } else { nil }
        }
        #expect(told == (isCut ? [true] : []))
        try next.checkInvariants()
    }

    @Test("P3, E5: the next connection reports a revocation to a client that did not read on the earlier one")
    func revocationCut() throws {
        let ids = [try center.observe(one, "A"), try center.observe(one, "B")]
        center.stop(one)
        try center.post(300, of: "A")
        center.revoke([ids[1]], of: one)
        #expect(center.revoked[one] == nil, "it does not read")
        let next = nextCenter()
        var effects: [Effect] = []
        next.finishRestoring(effects: &effects)
        next.sendAllReady(effects: &effects)
        let told = effects.compactMap { effect -> [ObserverID]? in
            if case .revoked(one, let observers) = effect { observers } else { nil }
        }
        #expect(told == [[ids[1]]])
        try next.checkInvariants()
    }

    @Test(
        "P3, E5: the center that takes over repeats a revocation, unless the client confirmed it",
        arguments: [false, true])
    func unconfirmedRevocation(isConfirmed: Bool) throws {
        let ids = [try center.observe(one, "A"), try center.observe(one, "B")]
        center.revoke([ids[1]], of: one)
        #expect(center.revoked[one] == [ids[1]])
        if isConfirmed { try center.post(64, of: "A") }
        let next = nextCenter()
        var effects: [Effect] = []
        next.finishRestoring(effects: &effects)
        let told = effects.compactMap { effect -> [ObserverID]? in
            if case .revoked(one, let observers) = effect { observers } else { nil }
        }
        #expect(told == (isConfirmed ? [] : [[ids[1]]]))
        try next.checkInvariants()
    }

    /// Tells a client of its suspension and of an observer that it lost, and opens a channel, to which all that is asked is
    /// written at once.
    ///
    /// - Returns: the observer, and the effects of the channel.
    private func tellAndOpenChannel() throws -> (lost: ObserverID, effects: [Effect]) {
        center.center.remembersChanges = true
        let ids = [try center.observe(one, "A"), try center.observe(one, "B")]
        center.stop(one)
        try center.suspend(one)
        center.revoke([ids[1]], of: one)
        #expect(center.revoked[one] == [ids[1]])
        var effects: [Effect] = []
        let before = try center.center.channelOpened(of: one, effects: &effects)
        for _ in 0..<before.probes { center.center.channelDrained(one, effects: &effects) }
        return (ids[1], effects)
    }

    private static func words(_ effects: [Effect]) -> (suspended: [Bool], revoked: [[ObserverID]]) {
        (
            effects.compactMap { if case .suspensionChanged(one, let suspended, _) = $0 { suspended } else { nil } },
            effects.compactMap { if case .revoked(one, let observers) = $0 { observers } else { nil } }
        )
    }

    @Test(
        "E3, E5: control signals sent before a client's channel count as confirmed when the bus has carried its reply",
        arguments: [false, true], [false, true])
    func toldBeforeChannel(isCarried: Bool, isKilled: Bool) throws {
        var (lost, effects) = try tellAndOpenChannel()
        if isCarried { center.center.channelCarried(to: one, effects: &effects) }
        let changes = effects.compactMap { if case .remember(let change) = $0 { change } else { nil } }
        let next: DistributedCenter
        if isKilled {
            next = DistributedCenter()
            for change in center.changes + changes { _ = next.restore(change) }
        } else {
            next = nextCenter()
        }
        effects = []
        next.finishRestoring(effects: &effects)
        let words = Self.words(effects)
        #expect(words.suspended == (isCarried ? [] : [true]))
        #expect(words.revoked == (isCarried ? [] : [[lost]]))
        try next.checkInvariants()
    }

    @Test("E3, E5: control signals sent before a channel that ended undelivered are repeated at once")
    func toldBeforeEndedChannel() throws {
        var (lost, effects) = try tellAndOpenChannel()
        effects = []
        center.center.channelEndedUndelivered(of: one, effects: &effects)
        var words = Self.words(effects)
        #expect(words.suspended == [true] && words.revoked == [[lost]])
        effects = []
        center.center.channelEndedUndelivered(of: three, effects: &effects)
        center.center.channelCarried(to: three, effects: &effects)
        #expect(effects.isEmpty && center.status(three) == nil, "it has none")
        // Nor is that confirmed yet.
        let next = nextCenter()
        effects = []
        next.finishRestoring(effects: &effects)
        words = Self.words(effects)
        #expect(words.suspended == [true] && words.revoked == [[lost]])
    }

    @Test(
        "E3, E5: control signals left unread in a channel are repeated, even if they were acknowledged",
        arguments: [false, true])
    func unreadInChannel(isDisconnected: Bool) throws {
        center.center.remembersChanges = true
        let ids = [try center.observe(one, "A"), try center.observe(one, "B")]
        try center.suspend(one)
        center.revoke([ids[1]], of: one)
        // With these the window is full, and the client confirms all of it.
        try center.post(63, of: "A")
        var effects: [Effect] = []
        if isDisconnected {
            center.center.controlSignalsLost(one, revoked: [ids[1]], effects: &effects)
            #expect(Self.words(effects).suspended.isEmpty, "there is no connection")
        } else {
            center.center.channelEnded(of: one, revoked: [ids[1]], effects: &effects)
            let words = Self.words(effects)
            #expect(words.suspended == [true] && words.revoked == [[ids[1]]])
        }
        let changes = effects.compactMap { if case .remember(let change) = $0 { change } else { nil } }
        // The next process, and the next connection of this one.
        let killed = DistributedCenter()
        for change in center.changes + changes { _ = killed.restore(change) }
        for next in [killed, nextCenter()] {
            effects = []
            next.finishRestoring(effects: &effects)
            let words = Self.words(effects)
            #expect(words.suspended == [true] && words.revoked == [[ids[1]]])
            try next.checkInvariants()
        }
        effects = []
        center.center.channelEnded(of: three, revoked: [ObserverID(rawValue: 1)], effects: &effects)
        #expect(effects.isEmpty && center.status(three) == nil)
    }

    @Test("E3, E5: the end of an undelivered channel does not repeat control signals acknowledged before it")
    func confirmedBeforeChannel() throws {
        center.center.remembersChanges = true
        try center.observe(one, "A")
        // With the suspension the window is full, and the client confirms it.
        try center.post(63, of: "A")
        try center.suspend(one)
        var effects: [Effect] = []
        _ = try center.center.channelOpened(of: one, effects: &effects)
        center.center.channelEndedUndelivered(of: one, effects: &effects)
        #expect(Self.words(effects).suspended == [])
    }
}
