// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What the core knows of channels: windows that are confirmed by what was written, and their ends (`docs/channel.md`).
@Suite("F2, A4: channels in the core", .limited)
struct ChannelCenterTests {
    let center = Scenario()
    private var core: DistributedCenter { center.center }

    /// A client that answers nothing and was asked once.
    private func silentObserver() throws {
        center.stop(one)
        try center.observe(one, "A")
    }

    @Test("A connection that opens a channel becomes a client, and its open probes move to the channel")
    func opened() throws {
        try silentObserver()
        var effects: [Effect] = []
        let known = try core.channelOpened(of: one, effects: &effects)
        #expect(known.probes == 1 && !known.isBacklogProbed)
        try center.post(200, of: "A")
        #expect(center.witnesses[one] == 1)
        let asked = try core.channelOpened(of: one, effects: &effects)
        #expect(asked.probes == center.unanswered[one] && asked.isBacklogProbed)
        #expect(center.status(two) == nil)
        let new = try core.channelOpened(of: two, effects: &effects)
        #expect(new.probes == 1 && !new.isBacklogProbed)
        #expect(center.status(two) != nil)
    }

    @Test(
        "Bytes written to a channel acknowledge messages, and do not prove that the client reads its bus",
        arguments: [false, true])
    func drained(hasAnswered: Bool) throws {
        try silentObserver()
        // The Ping of its registration was answered late.
        if hasAnswered { core.clientAnswers(one) }
        var effects: [Effect] = []
        core.channelDrained(one, effects: &effects)
        try center.post(129, of: "A")
        #expect(center.status(one)?.unconfirmed == 128)
        #expect(center.witnesses[one] == (hasAnswered ? nil : 1), "who never answered is looked at")
        effects = []
        core.channelDrained(one, effects: &effects)
        // The one that waited follows.
        core.sendAllReady(effects: &effects)
        #expect(center.status(one)?.unconfirmed == 65)
        core.channelDrained(one, effects: &effects)
        #expect(center.status(one)?.unconfirmed == 1)
        #expect(effects.contains { if case .deliver(let delivery) = $0 { delivery.sequence == 129 } else { false } })
        core.channelDrained(three, effects: &effects)
        core.clientAnswers(three)
        #expect(center.status(three) == nil)
    }

    @Test("A client that answers after a backlog probe no longer counts as one that never answers")
    func answersLate() throws {
        try silentObserver()
        try center.post(200, of: "A")
        #expect(center.witnesses[one] == 1 && center.status(one)?.flow == .unanswered)
        core.clientAnswers(one)
        #expect(center.status(one)?.flow == .waiting)
    }

    @Test("S4: unread messages of an ended channel are reported at once, up to their sequence numbers")
    func cut() throws {
        try center.observe(one, "A")
        try center.post(10, of: "A")
        var effects: [Effect] = []
        core.remembersChanges = true
        core.channelCut(one, atMost: 4, losses: 2, last: 8, effects: &effects)
        #expect(Self.told(effects) == [[6, 8]])
        // Were this the end, the two behind them would be missing as well.
        let possibleLoss = effects.compactMap { if case .possibleLoss(one, let count) = $0 { count } else { nil } }
        #expect(possibleLoss == [8, 0])
        effects = []
        core.channelCut(one, atMost: 1, losses: 0, last: nil, effects: &effects)
        #expect(Self.told(effects) == [[1, 10]])
        effects = []
        core.channelCut(two, atMost: 1, losses: 0, last: nil, effects: &effects)
        #expect(effects.isEmpty)
    }

    @Test("E5: messages of a channel that the client may never have received count as lost, even acknowledged ones")
    func unreachable() throws {
        try center.observe(one, "A")
        try center.post(200, of: "A")
        var effects: [Effect] = []
        core.inFlightLost(one, atMost: 100, losses: 0, effects: &effects)
        #expect(center.status(one)?.dropped == 8, "the rest is confirmed")
        core.inFlightLost(one, atMost: 100, losses: 0, unreachable: (notifications: 70, losses: 5), effects: &effects)
        #expect(center.status(one)?.dropped == 78)
    }

    @Test(
        "S4: messages sent on the bus before a channel do not count as delivered by writes to the channel",
        arguments: 0...2)
    func sentBefore(answers: Int) throws {
        try silentObserver()
        try center.post(3, of: "A")
        var effects: [Effect] = []
        let opened = try core.channelOpened(of: one, maxUnasked: 64 << 10, effects: &effects)
        let unanswered = opened.probes
        #expect(unanswered == 2 && !opened.needsAnswers, "what was sent since the first is asked about, on the bus")
        let hasAsked = effects.contains { if case .probe(one) = $0 { true } else { false } }
        #expect(hasAsked)
        for _ in 0..<unanswered { core.channelDrained(one, effects: &effects) }
        #expect(center.status(one)?.unconfirmed == 0, "it has its window for the channel")
        try center.post(2, of: "A")
        for _ in 0..<answers { core.clientAnswers(one) }
        core.inFlightLost(one, atMost: 5, losses: 0, effects: &effects)
        #expect(center.status(one)?.dropped == (answers == unanswered ? 2 : 5))
        core.inFlightLost(one, atMost: 5, losses: 0, effects: &effects)
        #expect(center.status(one)?.dropped == (answers == unanswered ? 2 : 5), "each is told once")
    }

    @Test("A4: a channel needs no answers up to the given unacknowledged bytes on the bus, and not a byte more")
    func maxUnasked() throws {
        func open(_ center: Scenario, maxUnasked: Int) throws -> DistributedCenter.SentBeforeChannel {
            center.stop(one)
            try center.observe(one, "A")
            try center.post(3, of: "A")
            var effects: [Effect] = []
            return try center.center.channelOpened(of: one, maxUnasked: maxUnasked, effects: &effects)
        }
        let sent = try open(Scenario(), maxUnasked: .max).byteCount
        #expect(try !open(Scenario(), maxUnasked: sent).needsAnswers)
        #expect(try open(Scenario(), maxUnasked: sent - 1).needsAnswers)
    }

    @Test("A4: a channel opened with more than the given unacknowledged bytes on the bus requires answers to them")
    func muchBefore() throws {
        try silentObserver()
        try center.post(3, of: "A")
        var effects: [Effect] = []
        let opened = try core.channelOpened(of: one, maxUnasked: 3, effects: &effects)
        #expect(opened.probes == 2 && opened.needsAnswers && opened.byteCount > 3)
        core.channelAnswered(one, effects: &effects)
        core.inFlightLost(one, atMost: 9, losses: 0, effects: &effects)
        #expect(center.status(one)?.dropped == 3)
        // The channel ends, and the answer comes.
        core.clientAnswered(one, effects: &effects)
        #expect(center.status(one)?.unconfirmed == 1, "the word of the loss")
    }

    @Test("A4: after a channel, answers to earlier probes on the bus acknowledge no later messages")
    func answeredBehind() throws {
        try silentObserver()
        var effects: [Effect] = []
        _ = try core.channelOpened(of: one, effects: &effects)
        core.channelDrained(one, effects: &effects)
        // The channel ends.
        try center.post(128, of: "A")
        #expect(center.status(one)?.unconfirmed == 128)
        core.clientAnswered(one, effects: &effects)
        #expect(center.status(one)?.unconfirmed == 128)
        core.clientAnswered(one, effects: &effects)
        #expect(center.status(one)?.unconfirmed == 64)
        // On a channel that waits for its answers.
        core.channelAnswered(one, effects: &effects)
        #expect(center.status(one)?.unconfirmed == 0)
        core.channelAnswered(three, effects: &effects)
        #expect(center.status(three) == nil)
    }

    /// How many, and up to which number.
    private static func told(_ effects: [Effect]) -> [[UInt64]] {
        effects.compactMap { effect in
            guard case .dropped(one, let count, _, .channelEnded, let sequence) = effect else { return nil }
            return [count, sequence]
        }
    }
}
