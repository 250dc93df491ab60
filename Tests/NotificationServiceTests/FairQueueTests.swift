// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonService

/// Time is told to the lines, so nothing here depends on the machine.
@Suite("E4: fair queue", .limited)
struct FairQueueTests {
    private let start = SuspendingClock.now

    /// What a caller brings is served at once for as long as its time lasts.
    private func bring(
        _ count: Int, taking time: Duration, of caller: String, to lines: inout FairQueue<String, Int>,
        at now: SuspendingClock.Instant, most: Int? = nil
    ) -> Int {
        var served = 0
        for number in 0..<count {
            if lines.mayServe(caller, at: now, most: most) {
                lines.note(time, of: caller)
                served += 1
            } else {
                lines.append(number, of: caller)
            }
        }
        return served
    }

    /// - Parameter first: of the name that callers of a test have.
    private func order(_ lines: inout FairQueue<String, Int>, taking time: Duration) -> [Int] {
        var order: [Int] = []
        for _ in 0..<10_000 {
            guard let item = lines.popNext() else { break }
            order.append(item)
            lines.chargeWaiting(time)
        }
        return order
    }

    @Test(
        "E4: a caller is served at once for half of a slot, its other items are queued, and the next slot starts anew")
    func slots() {
        var lines = FairQueue<String, Int>()
        let result1 = bring(20, taking: .milliseconds(1), of: "a", to: &lines, at: start)
        #expect(result1 == 10)
        #expect(lines.count == 10 && lines.isWaiting("a"))
        let result4 = order(&lines, taking: .milliseconds(1))
        #expect(result4 == Array(10..<20))
        let result8 = lines.mayServe("a", at: start, most: nil)
        #expect(!result8, "its time is used up")
        let result9 = lines.mayServe("a", at: start + .milliseconds(20), most: nil)
        #expect(result9)
    }

    @Test("E8: an overrun of a slot is deducted from the caller's later slots, and is forgotten after a second")
    func longItem() {
        var lines = FairQueue<String, Int>()
        let first = bring(1, taking: .milliseconds(45), of: "a", to: &lines, at: start)
        #expect(first == 1)
        func mayServe(after milliseconds: Int64, _ caller: String = "a") -> Bool {
            lines.mayServe(caller, at: start + .milliseconds(milliseconds), most: nil)
        }
        let others = mayServe(after: 1, "b")
        #expect(others, "others are served")
        // Ten milliseconds of each slot are its part, less with others.
        let early = [21, 41, 61].map { mayServe(after: $0) }
        #expect(early == [false, false, false])
        let later = mayServe(after: 181)
        #expect(later)
        lines.note(.seconds(100), of: "a")
        let tooEarly = mayServe(after: 500)
        #expect(!tooEarly)
        let atLast = mayServe(after: 1600)
        #expect(atLast, "nobody is shut out for what it did long ago")
    }

    @Test("D4: an item waits behind earlier queued items of its caller, also in later slots")
    func order() {
        var lines = FairQueue<String, Int>()
        _ = bring(11, taking: .milliseconds(1), of: "a", to: &lines, at: start)
        let result10 = lines.mayServe("a", at: start + .seconds(1), most: nil)
        #expect(!result10)
        lines.append(99, of: "a")
        let result5 = order(&lines, taking: .zero)
        #expect(result5 == [10, 99])
        #expect(lines.isEmpty && !lines.isWaiting("a"))
    }

    @Test("E4: a caller with rare calls is served at once beside a caller that floods")
    func rare() {
        var lines = FairQueue<String, Int>()
        for slot in 0..<50 {
            let now = start + .milliseconds(20) * slot
            _ = bring(1000, taking: .microseconds(50), of: "flood", to: &lines, at: now)
            let result11 = lines.mayServe("rare", at: now + .milliseconds(19), most: nil)
            #expect(result11)
            lines.note(.microseconds(50), of: "rare")
        }
        #expect(!lines.isWaiting("rare"))
    }

    @Test("E4: the share of each caller shrinks with the number of callers, and is never empty")
    func many() {
        var lines = FairQueue<String, Int>()
        let callers = (0..<20).map { "\($0)" }
        for slot in 0..<2 {
            let now = start + .milliseconds(20) * slot
            let served = callers.map { bring(100, taking: .microseconds(100), of: $0, to: &lines, at: now) }
            // In the first slot nobody knew of the others.
            #expect(served.allSatisfy { $0 == (slot == 0 ? 100 : 5) }, "\(slot): \(served)")
            _ = order(&lines, taking: .zero)
        }
        let crowd = (0..<1000).map { "\($0)" }
        for slot in 2..<4 {
            let now = start + .milliseconds(20) * slot
            let areServed = crowd.map { lines.mayServe($0, at: now, most: nil) }
            #expect(areServed.allSatisfy { $0 })
        }
    }

    @Test("E4: a maximum count also limits the items that are served at once")
    func count() {
        var lines = FairQueue<String, Int>()
        let result2 = bring(20, taking: .zero, of: "a", to: &lines, at: start, most: 8)
        #expect(result2 == 8)
        let result3 = bring(20, taking: .zero, of: "b", to: &lines, at: start, most: 8)
        #expect(result3 == 8)
    }

    @Test("E4: queues are served in rotation by time, not by count")
    func turns() {
        var lines = FairQueue<String, Int>()
        for number in 0..<4 {
            lines.append(100 + number, of: "slow")
            lines.append(200 + number, of: "other")
        }
        // Half a millisecond is a turn.
        let result6 = order(&lines, taking: .milliseconds(1))
        #expect(result6 == [100, 200, 101, 201, 102, 202, 103, 203])
        for number in 0..<4 {
            lines.append(100 + number, of: "fast")
            lines.append(200 + number, of: "other")
        }
        let result7 = order(&lines, taking: .microseconds(250))
        #expect(result7 == [100, 101, 200, 201, 102, 103, 202, 203])
    }

    @Test("E4: an item put back at the front of its queue is served next, and other queues keep their order")
    func prepending() {
        var lines = FairQueue<String, Int>()
        lines.append(100, of: "a")
        lines.append(200, of: "b")
        let first = lines.popNext()
        #expect(first == 100)
        // What is left of it, though its line was empty meanwhile.
        lines.prepend(101, of: "a")
        lines.prepend(300, of: "c")
        lines.chargeWaiting(.microseconds(100))
        let rest = order(&lines, taking: .milliseconds(1))
        #expect(rest == [101, 200, 300])
    }
}
