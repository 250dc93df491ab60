import Testing

@testable import NotificationService

@Suite("E4: what a bus holds back, and for how long", .timeLimit(.minutes(20)))
struct InboxWatchTests {
    private let start = SuspendingClock.now

    @Test("E4: an answer that is late without reading makes it be read, until it comes")
    func late() {
        var inbox = InboxWatch()
        #expect(inbox.mayAsk)
        inbox.asked(at: start)
        #expect(!inbox.mayAsk)
        let early = inbox.isLate(at: start + .milliseconds(500))
        let late = inbox.isLate(at: start + .milliseconds(501))
        #expect(!early && late && inbox.isCatchingUp)
        inbox.answered(at: start + .milliseconds(600))
        #expect(inbox.mayAsk && !inbox.isCatchingUp)
    }

    @Test("E4: a bus that holds little makes senders wait, and may be left unread for longer")
    func bounded() {
        var inbox = InboxWatch()
        inbox.asked(at: start)
        _ = inbox.isLate(at: start + .milliseconds(501))
        inbox.noteRead(8 << 20, at: start + .milliseconds(550))
        inbox.answered(at: start + .milliseconds(600))
        #expect(!inbox.isUnbounded(at: start + .milliseconds(600)))
        let again = start + .seconds(2)
        inbox.asked(at: again)
        let early = inbox.isLate(at: again + .milliseconds(900))
        let late = inbox.isLate(at: again + .milliseconds(1001))
        #expect(!early && late)
    }

    @Test("E4: a bus that holds much makes nobody wait, and that is known for a minute")
    func unbounded() {
        var inbox = InboxWatch()
        inbox.asked(at: start)
        _ = inbox.isLate(at: start + .milliseconds(501))
        inbox.noteRead(16 << 20, at: start + .milliseconds(550))
        #expect(!inbox.isUnbounded(at: start + .milliseconds(550)))
        let found = start + .milliseconds(560)
        inbox.noteRead(1, at: found)
        #expect(inbox.isUnbounded(at: found))
        inbox.answered(at: found + .milliseconds(1))
        #expect(inbox.isUnbounded(at: found + .seconds(59)))
        #expect(!inbox.isUnbounded(at: found + .seconds(61)))
    }

    @Test("E4: much that is read quickly is no sign of anything")
    func quick() {
        var inbox = InboxWatch()
        inbox.asked(at: start)
        inbox.noteRead(100 << 20, at: start + .milliseconds(200))
        #expect(!inbox.isUnbounded(at: start + .milliseconds(200)))
        inbox.noteRead(1, at: start + .milliseconds(301))
        #expect(inbox.isUnbounded(at: start + .milliseconds(301)), "though all is read, it does not come")
    }
}
