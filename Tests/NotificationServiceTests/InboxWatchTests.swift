// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonService

@Suite("E4: detection of delayed reading", .limited)
struct InboxWatchTests {
    @Test("E4: reading counts as delayed while the answer to a test call is more than 10 ms late")
    func late() {
        let start = SuspendingClock.now
        var inbox = InboxWatch()
        #expect(inbox.mayAsk && !inbox.isBehind(at: start + .seconds(1)))
        inbox.asked(at: start)
        #expect(!inbox.mayAsk && !inbox.isBehind(at: start + .milliseconds(10)))
        #expect(inbox.isBehind(at: start + .milliseconds(11)))
        inbox.answered()
        #expect(inbox.mayAsk && !inbox.isBehind(at: start + .seconds(1)))
    }
}
