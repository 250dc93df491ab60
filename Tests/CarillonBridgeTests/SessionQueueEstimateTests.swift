// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("G2: messages that the broker has queued for the session", .limited)
struct SessionQueueEstimateTests {
    private let start = SuspendingClock.now

    private func time(_ seconds: Int) -> SuspendingClock.Instant { start + .seconds(seconds) }

    @Test("Queued messages may arrive during the first 90 s of reading, and only if the broker had a session")
    func readingTime() {
        var queue = SessionQueueEstimate()
        #expect(!queue.mayStillDeliver(now: start))
        queue.begin(sessionPresent: false, isPaused: false, now: start)
        #expect(!queue.mayStillDeliver(now: start))
        queue.begin(sessionPresent: true, isPaused: false, now: start)
        #expect(queue.mayStillDeliver(now: time(89)))
        #expect(!queue.mayStillDeliver(now: time(90)))
    }

    @Test("Pauses in reading, also at the beginning, do not count as reading time")
    func pauses() {
        var queue = SessionQueueEstimate()
        queue.begin(sessionPresent: true, isPaused: true, now: start)
        #expect(queue.mayStillDeliver(now: time(500)))
        queue.resume(now: time(500))
        queue.pause(now: time(550))
        #expect(queue.mayStillDeliver(now: time(900)))
        queue.resume(now: time(900))
        #expect(queue.mayStillDeliver(now: time(939)))
        #expect(!queue.mayStillDeliver(now: time(940)))
        queue.pause(now: time(950))
        #expect(!queue.mayStillDeliver(now: time(950)), "it is read")
        queue.resume(now: time(951))
        #expect(!queue.mayStillDeliver(now: time(951)))
    }
}
