// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What goes to another session, as far as that takes it.
@Suite("G1: send queue to another session", .limited)
struct SessionSendQueueTests {
    /// A line, and what was taken out of it.
    private final class Line {
        private var line: SessionSendQueue<Int>

        init(window: Int = 2, windowBytes: Int = 100, queue: Int = 3, queueBytes: Int = 100) {
            line = SessionSendQueue(.init(window: (window, windowBytes), queue: (queue, queueBytes)))
        }

        var isBlocked: Bool { line.isBlocked }
        var waitingCount: Int { line.waitingCount }
        var sent: UInt64 { line.sent }
        var lost: UInt64 { line.lost }

        @discardableResult
        func append(_ item: Int, byteCount: Int = 1) -> Int { line.append(item, byteCount: byteCount).count }
        func next() -> (item: Int, number: UInt64, lost: UInt64)? { line.next() }
        func confirm(upTo number: UInt64) -> Bool { line.confirm(upTo: number) }
        func giveUp() { line.giveUp() }
        func last() -> UInt64 { line.last(byteCount: 1) }

        /// All that may go now.
        func take() -> [Int] {
            var items: [Int] = []
            while items.count < 1000, let next = line.next() { items.append(next.item) }
            return items
        }
    }

    @Test("A session gets one window of notifications, and further ones after a cumulative confirmation")
    func window() {
        let line = Line()
        for item in 1...4 { #expect(line.append(item, byteCount: 1) == (item == 4 ? 1 : 0)) }
        #expect(line.take() == [2, 3] && line.isBlocked && line.waitingCount == 1)
        #expect(line.confirm(upTo: 0) && line.take() == [])
        #expect(line.confirm(upTo: 2) && line.take() == [4])
        #expect(!line.isBlocked && line.sent == 3 && line.lost == 1)
        #expect(!line.confirm(upTo: 4), "it was not given")
        #expect(line.confirm(upTo: 1), "what is confirmed again changes nothing")
    }

    @Test("The window and the queue are also limited by bytes, and an empty window takes one item of any size")
    func bytes() {
        let line = Line(window: 10, windowBytes: 10, queue: 10, queueBytes: 20)
        #expect(line.append(1, byteCount: 500) == 0)
        #expect(line.take() == [1])
        #expect(line.append(2, byteCount: 8) == 0 && line.append(3, byteCount: 8) == 0)
        #expect(line.append(4, byteCount: 8) == 1)
        #expect(line.take() == [])
        #expect(line.confirm(upTo: 1) && line.take() == [3, 4], "below the bound one more may go")
        #expect(line.append(5, byteCount: 1) == 0 && line.take() == [])
    }

    @Test("The queue may have exactly its limit of bytes, and a window with exactly its limit is full")
    func exactBytes() {
        let line = Line(window: 10, windowBytes: 10, queue: 10, queueBytes: 20)
        #expect(line.append(1, byteCount: 10) == 0 && line.append(2, byteCount: 10) == 0)
        #expect(line.take() == [1])
        #expect(line.append(3, byteCount: 10) == 0)
        #expect(line.append(4, byteCount: 1) == 1)
        #expect(line.confirm(upTo: 1) && line.take() == [3])
    }

    @Test("Losses are reported once, with the next notification that is sent")
    func told() {
        let line = Line(window: 1, queue: 1)
        for item in 1...3 { line.append(item, byteCount: 1) }
        let first = line.next()
        #expect(first?.item == 3 && first?.number == 1 && first?.lost == 2)
        line.append(4, byteCount: 1)
        line.append(5, byteCount: 1)
        #expect(line.confirm(upTo: 1))
        let second = line.next()
        #expect(second?.item == 5 && second?.number == 2 && second?.lost == 1)
        #expect(line.confirm(upTo: 2))
        line.append(6, byteCount: 1)
        #expect(line.next()?.lost == 0)
    }

    @Test("Without confirmations, notifications are sent one at a time until a confirmation arrives")
    func doubt() {
        let line = Line(window: 3, queue: 100)
        for item in 1...12 { line.append(item, byteCount: 1) }
        #expect(line.take() == [1, 2, 3])
        line.giveUp()
        #expect(line.take() == [4] && line.isBlocked)
        line.giveUp()
        #expect(line.take() == [5])
        #expect(line.confirm(upTo: 5))
        #expect(line.take() == [6, 7, 8])
        // What was on its way after all is no mistake.
        #expect(line.confirm(upTo: 7) && line.confirm(upTo: 3))
        #expect(line.last() == 9 && line.confirm(upTo: 9), "the last word goes whatever is on the way")
    }

    @Test("A rate limit is full again as soon as its whole burst is available")
    func fullRate() {
        var rate = RateLimit(perSecond: 10, burst: 5)
        #expect(rate.isFull(at: 0))
        let isTaken = rate.take(at: 0)
        #expect(isTaken && !rate.isFull(at: 0) && !rate.isFull(at: 99_999))
        #expect(rate.isFull(at: 100_000) && rate.isFull(at: 1_000_000))
    }

    @Test("A rate limit admits its burst at once and then its rate per second")
    func rate() {
        var rate = RateLimit(perSecond: 10, burst: 5)
        func takes(_ amount: Int = 1, at now: Int64) -> Bool { rate.take(amount, at: now) }
        #expect((0..<6).map { _ in takes(at: 0) } == [true, true, true, true, true, false])
        #expect(!takes(at: 99_000) && takes(at: 100_000) && !takes(at: 100_000))
        #expect(!takes(6, at: 10_000_000) && takes(5, at: 10_000_000))
        #expect(!takes(at: 0), "a clock that goes back gives nothing")
    }
}
