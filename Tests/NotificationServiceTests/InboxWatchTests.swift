// SPDX-License-Identifier: Apache-2.0
import TestLimits
import Testing

@testable import NotificationService

@Suite("E4: what a bus holds back, and for how long", .limited)
struct InboxWatchTests {
    private let start = SuspendingClock.now

    @Test("E4: an answer that is late without reading makes it be read, until it comes")
    func late() {
        var inbox = InboxWatch()
        #expect(inbox.mayAsk)
        inbox.asked(at: start)
        #expect(!inbox.mayAsk)
        let early = inbox.isLate(at: start + .milliseconds(250))
        let late = inbox.isLate(at: start + .milliseconds(251))
        #expect(!early && late && inbox.isCatchingUp)
        inbox.answered(at: start + .milliseconds(600))
        #expect(inbox.mayAsk && !inbox.isCatchingUp)
    }

    @Test("E4: where a bus holds little it may be left unread for longer, so that all is read within a second")
    func bounded() {
        // It takes 20 ms to read what it holds, however long nothing was read.
        expectPauses([251, 503, 578, 580, 581]) { _ in 20 }
    }

    @Test("E4: where reading what it holds takes as long as not reading did, both take less than a second together")
    func slow() {
        expectPauses([251, 301, 301]) { $0 }
    }

    /// For so many milliseconds nothing is read, each time.
    ///
    /// - Parameter reading: how long it takes to read what comes in such a time.
    private func expectPauses(
        _ expected: [Int], sourceLocation: SourceLocation = #_sourceLocation, reading: (Int) -> Int
    ) {
        var inbox = InboxWatch()
        var now = start
        var pauses: [Int] = []
        for _ in expected {
            inbox.asked(at: now)
            let pause = (0...1000).first { inbox.isLate(at: now + .milliseconds($0)) } ?? 0
            pauses.append(pause)
            let end = now + .milliseconds(pause + reading(pause))
            inbox.noteRead(8 << 20, at: end)
            inbox.answered(at: end)
            #expect(!inbox.isUnbounded(at: end))
            now = end
        }
        // What is computed with fractions may be off by one.
        #expect(zip(pauses, expected).allSatisfy { abs($0 - $1) <= 1 }, "\(pauses)", sourceLocation: sourceLocation)
    }

    @Test("E4: a bus that holds much makes nobody wait, and that is known for a minute")
    func unbounded() {
        var inbox = InboxWatch()
        inbox.asked(at: start)
        _ = inbox.isLate(at: start + .milliseconds(251))
        inbox.noteRead(16 << 20, at: start + .milliseconds(300))
        #expect(!inbox.isUnbounded(at: start + .milliseconds(300)))
        let found = start + .milliseconds(310)
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
        inbox.noteRead(1, at: start + .milliseconds(201))
        #expect(inbox.isUnbounded(at: start + .milliseconds(201)), "though all is read, it does not come")
    }
}
