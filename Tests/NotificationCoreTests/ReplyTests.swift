// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// Replies on the bus, beside a channel (`docs/flow-control.md`).
@Suite("F2, A4: replies on the bus beside a channel", .limited)
struct ReplyTests {
    private let center = Scenario()

    /// `one` answers, has a channel, and leaves it unread.
    private func leaveChannelUnread() throws {
        try center.observe(one, "A")
        try center.post(100, of: "A")
        try center.openChannel(of: one)
        center.stop(one)
        try center.post(1000, of: "A")
        #expect(center.status(one)?.flow == .waiting)
    }

    private var wereSentAtOnce: (Int) -> Int {
        { count in
            (0..<count).count { _ in if case .now = center.reply(to: one) { true } else { false } }
        }
    }

    @Test("A client that does not read its channel gets replies on the bus, as long as it reads those")
    func unreadChannel() throws {
        try leaveChannelUnread()
        for _ in 0..<50 {
            #expect(wereSentAtOnce(64) == 64)
            center.answerOnBus(one)
        }
        #expect(center.replyProbes[one] == 50 && center.statistics.answerBytes == 0)
        #expect(center.status(one)?.flow == .waiting, "nothing of that confirms what is in the channel")
        try center.center.checkInvariants()
    }

    @Test("A client that reads neither channel nor bus gets two windows of replies, and the rest in order later")
    func unread() throws {
        try leaveChannelUnread()
        #expect(wereSentAtOnce(300) == 128)
        #expect(center.center.isServed(one) && center.statistics.answerBytes > 172 * 100)
        center.answerOnBus(one)
        #expect(center.sentReplies[one] == 64)
        center.answerOnBus(one)
        center.answerOnBus(one)
        #expect(center.sentReplies[one] == 172 && center.statistics.answerBytes == 0)
        #expect(center.sentAnswers[one] == nil)
        try center.center.checkInvariants()
    }

    @Test(
        "A single-threaded client that answers no Ping while it waits for a reply is probed by its socket backlog"
    )
    func synchronous() throws {
        try leaveChannelUnread()
        var sent = 0
        for _ in 0..<1000 {
            sent += wereSentAtOnce(1)
            if center.replyWitnesses[one, default: 0] > 0, sent + center.sentReplies[one, default: 0] < 1000 {
                center.probeReplyBacklog(one, hasRead: true)
            }
        }
        #expect(sent + center.sentReplies[one, default: 0] == 1000)
        #expect(center.replyWitnesses[one, default: 0] < 20)
    }

    @Test("Without a channel, a waiting reply starts a socket backlog probe of a client that answered before")
    func withoutChannel() throws {
        try center.observe(one, "A")
        try center.post(100, of: "A")
        center.stop(one)
        try center.post(200, of: "A")
        #expect(center.witnesses[one] == nil, "one that answers is waited for")
        #expect(!center.answer(to: one))
        #expect(center.witnesses[one] == 1 && center.status(one)?.flow == .waiting)
        center.backlogProbe(one, hasRead: true)
        #expect(center.sentAnswers[one] == 1 && center.received(one).count > 228)
    }

    @Test("The result of a socket backlog probe is ignored after a later answer of the client")
    func lateFinding() throws {
        try center.observe(one, "A")
        try center.post(100, of: "A")
        center.stop(one)
        try center.post(200, of: "A")
        #expect(!center.answer(to: one))
        center.answer(one)
        let unconfirmed = center.status(one)?.unconfirmed
        center.backlogProbe(one, hasRead: true)
        #expect(center.status(one)?.unconfirmed == unconfirmed)
    }

    @Test("Queued replies precede newer ones, also after the channel's end, and the empty reply queue is removed")
    func afterChannel() throws {
        try leaveChannelUnread()
        #expect(wereSentAtOnce(130) == 128)
        center.channelGone(of: one)
        guard case .atSendReply = center.reply(to: one) else { Issue.record("it overtakes those"); return }
        for _ in 0..<3 { center.answerOnBus(one) }
        #expect(center.sentReplies[one] == 3)
        // The last three were asked about when the channel ended, or are now.
        center.answerOnBus(one)
        guard case .atSendAnswer = center.reply(to: one) else {
            Issue.record("its window is that of any other"); return
        }
        #expect(center.center.peers[one]?.replies == nil, "what was unasked is asked about, and given back")
        center.disappear(one)
        #expect(center.statistics.inFlightBytes == 0 && center.statistics.answerBytes == 0)
        try center.center.checkInvariants()
    }
}
