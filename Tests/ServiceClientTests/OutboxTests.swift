// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonClient

@Suite("Outbox: ordered and bounded requests to the service (E1)", .limited)
struct OutboxTests {
    private func filled(posts: Int) -> Outbox<Int> {
        var outbox = Outbox<Int>()
        for number in 0..<posts { outbox.append(number, .post(wantsAnswer: false)) }
        return outbox
    }

    private func next(_ outbox: inout Outbox<Int>) -> Int? {
        outbox.next()?.requests.first
    }

    @Test("Requests leave the outbox in their order")
    func order() {
        var outbox = Outbox<Int>()
        for number in 0..<1000 { outbox.append(number, number.isMultiple(of: 3) ? .other : .post(wantsAnswer: true)) }
        var left: [Int] = []
        while let (requests, confirms) = outbox.next() {
            left += requests
            if let confirms { outbox.confirmed(confirms) }
        }
        #expect(left == Array(0..<1000))
        #expect(outbox.isEmpty)
    }

    @Test("Every 64th post requests an answer, and with 256 posts in flight the next ones wait")
    func window() {
        var outbox = filled(posts: 1000)
        var confirming: [Int] = []
        var sent = 0
        while let (requests, confirms) = outbox.next() {
            sent += 1
            if confirms != nil { confirming += requests }
        }
        #expect(sent == 256)
        #expect(confirming == [63, 127, 191, 255])
        outbox.confirmed(64)
        var more = 0
        while outbox.next() != nil { more += 1 }
        #expect(more == 64)
    }

    @Test("E10: posts without an answer count as possibly lost at the end, unless a later answer confirms them")
    func silent() {
        func lost(_ outbox: Outbox<Int>) -> Int {
            var ended = outbox
            ended.reset()
            #expect(ended.unsent.unconfirmed == ended.unresolved)
            defer { #expect(ended.resolve() == 0, "they are announced once") }
            return ended.resolve()
        }
        func outbox(posts: Int) -> Outbox<Int> {
            var outbox = Outbox<Int>()
            for number in 0..<posts { outbox.append(number, .post(wantsAnswer: false)) }
            while outbox.next() != nil {}
            return outbox
        }
        var few = outbox(posts: 10)
        #expect(lost(few) == 10)
        few.countBusBypass()
        #expect(few.isConfirmationDue)
        #expect(lost(few) == 11)
        // The 64th asked for an answer. It is told as a failure where there is none.
        var many = outbox(posts: 100)
        #expect(lost(many) == 99)
        #expect(many.requestConfirmation() == nil, "an answer is on its way")
        many.confirmed(.init(count: 64, silent: 63))
        #expect(lost(many) == 36)
        let question = many.requestConfirmation()
        #expect(question == .init(count: 36, silent: 36))
        #expect(many.requestConfirmation() == nil && !many.isConfirmationDue)
        many.confirmed(question!)
        #expect(many.unsent == (0, 0) && lost(many) == 0)
        var withBarrier = outbox(posts: 10)
        withBarrier.append(0, .barrier)
        let asked = withBarrier.next()
        #expect(asked?.confirms == .init(count: 10, silent: 10))
        withBarrier.countBusBypass()
        withBarrier.confirmed(asked!.confirms!)
        #expect(withBarrier.unsent == (0, 1))
        #expect(lost(withBarrier) == 1)
        // A failure confirms nothing, and the next answer all of it.
        var failing = outbox(posts: 100)
        failing.failed(.init(count: 64, silent: 63))
        #expect(failing.unsent.unconfirmed == 36 + 63 && failing.isConfirmationDue)
        #expect(lost(failing) == 99)
        failing.append(0, .barrier)
        failing.confirmed(failing.next()!.confirms!)
        #expect(failing.unsent.unconfirmed == 0)
        #expect(lost(failing) == 0)
        // Those that are known to have been refused are told already.
        var refusing = outbox(posts: 10)
        refusing.refused(4)
        #expect(refusing.unsent.unconfirmed == 6)
        var refused = refusing
        refused.reset()
        #expect(refused.unsent == (0, 6) && refused.unresolved == 6)
        refused.refused(2, isEnding: true)
        #expect(refused.resolve() == 4 && refused.unsent == (0, 0))
        refusing.append(0, .barrier)
        let barrier = refusing.next()!.confirms!
        refusing.countBusBypass()
        refusing.confirmed(barrier)
        #expect(refusing.unsent.unconfirmed == 1)
        #expect(lost(refusing) == 1)
        refused.refused(3)
        #expect(refused.unsent == (0, 0) && lost(refused) == 0)
        // A batch that asks for an answer after all, and one of which only the last asks.
        var trial = outbox(posts: 5)
        #expect(trial.asks(3) == .init(count: 5, silent: 2))
        #expect(lost(trial) == 2, "the three are told as failures")
        var confirmation = Outbox<Int>.Confirmation(count: 5, silent: 2)
        trial.makeSilent(2, of: &confirmation)
        #expect(confirmation == .init(count: 5, silent: 4))
        #expect(lost(trial) == 4)
        trial.confirmed(confirmation)
        #expect(lost(trial) == 0)
        var answered = Outbox<Int>()
        answered.append(0, .post(wantsAnswer: false))
        answered.append(1, .registration)
        #expect(answered.next() != nil)
        #expect(answered.next()?.confirms == .init(count: 2, silent: 1))
        answered.append(2, .post(wantsAnswer: true))
        #expect(answered.next() != nil)
        #expect(lost(answered) == 1, "of posts with an outcome that says it")
        answered.append(0, .post(wantsAnswer: false))
        #expect(answered.nextPosts() == [0])
        #expect(lost(answered) == 1, "by a way of their own each is answered")
        answered.reset(isTaken: true)
        #expect(answered.resolve() == 0, "a service that answers behind them has taken them")
    }

    @Test("The answer to a post also confirms the posts before it")
    func answered() {
        var outbox = Outbox<Int>()
        for _ in 0..<10 { outbox.append(0, .post(wantsAnswer: false)) }
        outbox.append(1, .post(wantsAnswer: true))
        var confirmed = 0
        while let (_, confirms) = outbox.next() { confirmed += confirms?.count ?? 0 }
        #expect(confirmed == 11)
    }

    @Test("Waiting posts leave in batches of up to 64 posts and 64 KiB, each confirmed by one answer")
    func together() {
        var outbox = filled(posts: 130)
        #expect(outbox.next(.not) == nil, "they have to wait")
        var batches: [[Int]] = []
        var confirmed: [Int?] = []
        while let (requests, confirms) = outbox.next(.together) {
            batches.append(requests)
            confirmed.append(confirms?.count)
        }
        #expect(batches == [Array(0..<64), Array(64..<128)])
        #expect(confirmed == [64, 64])
        for _ in confirmed { outbox.confirmed(64) }
        var next = outbox.next(.together)
        #expect(next?.requests == [128, 129] && next?.confirms == nil, "two are few")
        outbox.append(100, .post(wantsAnswer: false))
        outbox.append(101, .post(wantsAnswer: true))
        outbox.append(102, .other)
        outbox.append(103, .post(wantsAnswer: false))
        next = outbox.next(.together)
        #expect(next?.requests == [100, 101] && next?.confirms?.count == 4, "what is no post keeps its place")
        #expect(outbox.next(.not)?.requests == [102])
        #expect(outbox.next(.together)?.requests == [103])
        for number in 0..<3 { outbox.append(number, .post(wantsAnswer: false), byteCount: 40 << 10) }
        #expect(outbox.next(.together)?.requests == [0], "two would be too large")
    }

    @Test("F1: with eight posts in flight, further posts gather until the answer arrives or 64 are waiting")
    func accumulates() {
        var outbox = Outbox<Int>()
        /// Whether whoever sends has to be told.
        func post(_ number: Int, answered: Bool = false) -> Bool {
            outbox.append(number, .post(wantsAnswer: answered))
        }
        for number in 0..<8 {
            #expect(post(number))
            let (requests, confirms) = outbox.next(.together) ?? ([], nil)
            #expect(requests == [number] && confirms?.count == (number == 7 ? 8 : nil), "the eighth is answered")
        }
        #expect(post(8))
        #expect(outbox.next(.together) == nil)
        #expect(outbox.isAccumulating)
        #expect(!post(9), "it waits for the same answer")
        outbox.confirmed(8)
        #expect(!outbox.isAccumulating && post(10))
        var next = outbox.next(.together)
        #expect(next?.requests == [8, 9, 10] && next?.confirms == nil)
        for number in 11..<16 {
            #expect(post(number))
            next = outbox.next(.together)
        }
        #expect(next?.requests == [15] && next?.confirms?.count == 8)
        for number in 16..<79 {
            #expect(post(number) == (number == 16))
            #expect(outbox.next(.together) == nil)
        }
        #expect(post(79), "they are as many as go together")
        next = outbox.next(.together)
        #expect(next?.requests == Array(16..<80) && next?.confirms?.count == 64)
    }

    @Test("F1: gathered posts leave when an awaited request follows them, and on a flush")
    func hurries() {
        var outbox = filled(posts: 8)
        #expect(outbox.next(.together)?.confirms?.count == 8)
        func pileUp() {
            outbox.append(1, .post(wantsAnswer: false))
            #expect(outbox.next(.together) == nil)
            #expect(outbox.isAccumulating)
        }
        /// Whether whoever sends has to be told.
        func ask(_ number: Int, _ kind: Outbox<Int>.Kind) -> Bool { outbox.append(number, kind) }
        pileUp()
        #expect(ask(2, .post(wantsAnswer: true)))
        #expect(outbox.next(.together)?.requests == [1, 2])
        pileUp()
        #expect(ask(3, .other))
        #expect(outbox.next(.together)?.requests == [1])
        #expect(outbox.next(.together)?.requests == [3])
        pileUp()
        #expect(ask(4, .registration))
        #expect(outbox.next(.together)?.requests == [1])
        #expect(outbox.next(.together)?.requests == [4])
        pileUp()
        outbox.flushBatch()
        outbox.append(5, .post(wantsAnswer: false))
        let next = outbox.next(.together)
        #expect(next?.requests == [1, 5] && next?.confirms?.count == 2, "it asks for an answer, too")
        pileUp()
    }

    @Test("At most 256 posts are in flight, also when they leave in batches")
    func windowTogether() {
        var outbox = filled(posts: 1000)
        var sent = 0
        while let (requests, _) = outbox.next(.together) { sent += requests.count }
        #expect(sent == 256)
        outbox.confirmed(10)
        #expect(outbox.next(.together)?.requests.count == 10)
    }

    @Test("Other requests leave while the window of posts is full, but never overtake a waiting post")
    func others() {
        var outbox = filled(posts: 256)
        while outbox.next() != nil {}
        outbox.append(1000, .other)
        #expect(next(&outbox) == 1000)
        outbox.append(1001, .post(wantsAnswer: false))
        outbox.append(1002, .other)
        #expect(next(&outbox) == nil)
        outbox.confirmed(64)
        #expect(next(&outbox) == 1001)
        #expect(next(&outbox) == 1002)
    }

    @Test("After a change of the service no post counts as in flight, and a whole window may leave")
    func reset() {
        var outbox = filled(posts: 600)
        while outbox.next() != nil {}
        outbox.reset()
        #expect(next(&outbox) == 256)
        for _ in 1..<255 { _ = next(&outbox) }
        #expect(next(&outbox) == 511, "a whole window may leave")
        #expect(next(&outbox) == nil)
    }

    @Test("The outbox is bounded by number and by bytes, and departing requests free space")
    func bounds() {
        var outbox = Outbox<Int>(limits: .init(count: 2, byteCount: 100))
        #expect(outbox.hasRoom(byteCount: 100) && !outbox.hasRoom(byteCount: 101))
        outbox.append(0, .post(wantsAnswer: true), byteCount: 60)
        #expect(!outbox.hasRoom(byteCount: 41) && outbox.hasRoom(byteCount: 40))
        outbox.append(1, .post(wantsAnswer: true), byteCount: 1)
        #expect(!outbox.hasRoom(byteCount: 1))
        _ = outbox.next()
        #expect(outbox.hasRoom(byteCount: 99) && !outbox.hasRoom(byteCount: 100))
    }

    @Test("All waiting requests can be removed, and no longer count")
    func removal() {
        var outbox = Outbox<Int>(limits: .init(count: 10, byteCount: 10))
        for number in 0..<10 { outbox.append(number, .post(wantsAnswer: false), byteCount: 1) }
        _ = outbox.next()
        #expect(outbox.removeAll() == Array(1..<10))
        #expect(outbox.isEmpty && outbox.hasRoom(byteCount: 10))
    }

    @Test("An outbox is open until the program closes it, and then keeps its waiting requests")
    func closing() throws {
        let outbox = SharedOutbox()
        #expect(!outbox.isClosed)
        try outbox.append(.post(try OutgoingPost(name: "Ding", completion: nil)))
        #expect(!outbox.isClosed)
        outbox.close()
        #expect(outbox.isClosed && !outbox.isEmpty)
    }
}
