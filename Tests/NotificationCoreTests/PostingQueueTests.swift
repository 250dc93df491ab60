// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Posts that wait in their poster's queue.
@Suite("Q7: posting styles and coalescing", .limited)
struct PostingQueueTests {
    @Test("Q7: a queued post has no receivers, and is matched and numbered only when it is posted")
    func matchedLater() throws {
        let center = Scenario()
        try center.observe(one, "A")
        #expect(try center.post("A", style: .whenIdle) == 0)
        #expect(try center.post("A", style: .asap) == 0)
        #expect(center.statistics.posted == 0)
        #expect(center.statistics.queuedPosts == 2)
        #expect(center.statistics.queuedPostBytes > 0)
        try center.observe(two, "A")
        #expect(try center.post("A") == 2)
        center.postQueued(.asap)
        center.postQueued(.whenIdle)
        #expect(center.received(two).map(\.tag) == [3, 2, 1])
        #expect(center.received(two).map(\.serial) == [1, 2, 3])
        #expect(center.received(two).map(\.poster) == [":1.0", ":1.0", ":1.0"])
        #expect(center.statistics.queuedPosts == 0)
        #expect(center.statistics.queuedPostBytes == 0)
        #expect(!center.center.hasQueuedPosts(.asap) && !center.center.hasQueuedPosts(.whenIdle))
    }

    @Test("Q1, D4: queued posts are first in, first out within a style, and a post with style now precedes them")
    func order() throws {
        let center = Scenario()
        try center.observe(one)
        for (object, style) in [
            ("1", PostingStyle.whenIdle), ("2", .asap), ("3", .whenIdle), ("4", .now), ("5", .asap),
        ] {
            try center.post("A", object, style: style)
        }
        center.postQueued(.asap, limit: 1)
        center.postQueued(.asap)
        center.postQueued(.whenIdle)
        #expect(center.objects(one) == ["4", "2", "5", "1", "3"])
    }

    @Test("Q7, M6: a pass over an empty posting queue does not send ready notifications")
    func noneQueued() throws {
        let center = Scenario()
        center.center.remembersChanges = true
        try center.observe(one, "A")
        center.isBusy = true
        try center.post("A")
        center.postQueued(.asap)
        #expect(center.center.isAnythingReady && center.received(one).isEmpty)
        center.send()
        #expect(center.names(one) == ["A"])
    }

    @Test("Q3, Q7: a thousand coalescing posts become one post, the newest")
    func coalescing() throws {
        let center = Scenario()
        try center.observe(one)
        for _ in 0..<1000 { try center.post("Progress", style: .whenIdle, coalescing: [.name]) }
        #expect(center.statistics.queuedPosts == 1)
        center.postQueued(.whenIdle)
        #expect(center.received(one).map(\.tag) == [1000])
        #expect(center.statistics.coalesced == 999)
        #expect(center.statistics.posted == 1)
    }

    @Test(
        "Q3: posts are similar if they agree in all parts of the mask; without a mask no posts are similar",
        arguments: [
            ([], ["Ax", "Ay", "Bx", "A", "Ax"]), ([.name], ["Bx", "Ax"]), ([.object], ["Ay", "A", "Ax"]),
            ([.name, .object], ["Ay", "Bx", "A", "Ax"]),
        ] as [(Set<CoalescingKey>, [String])])
    func masks(coalescing: Set<CoalescingKey>, expected: [String]) throws {
        let center = Scenario()
        try center.observe(one)
        for (name, object) in [("A", "x"), ("A", "y"), ("B", "x"), ("A", "")] {
            try center.post(name, object, style: .asap)
        }
        try center.post("A", "x", style: .asap, coalescing: coalescing)
        center.postQueued(.asap)
        #expect(center.received(one).map { $0.name + $0.object } == expected)
        #expect(center.received(one).last?.tag == 5)
    }

    @Test("Q3: coalescing treats an absent object as one object, and compares objects byte for byte")
    func withoutObject() throws {
        let center = Scenario()
        try center.observe(one)
        for object in ["", "x", "\u{E9}", "e\u{301}"] { try center.post("A", object, style: .asap) }
        try center.post("B", "", style: .asap, coalescing: [.object])
        try center.post("C", "\u{E9}", style: .asap, coalescing: [.object])
        center.postQueued(.asap)
        #expect(center.names(one) == ["A", "A", "B", "C"])
        #expect(center.received(one)[1].object.unicodeScalars.count == 2)
    }

    @Test("Q3: a coalescing post goes to the tail, and inherits the most urgent style and deliver-immediately")
    func takesOver() throws {
        let center = Scenario()
        try center.observe(one, "", "", .hold)
        try center.suspend(one)
        try center.post("A", "1", immediately: true, style: .asap)
        try center.post("B", "2", style: .asap)
        try center.post("A", "3", style: .whenIdle, coalescing: [.name])
        center.postQueued(.asap)
        #expect(center.objects(one) == ["2", "3"], "B was flushed by A, which is delivered to a suspended client")
        #expect(!center.center.hasQueuedPosts(.whenIdle))
    }

    @Test("Q2: a coalescing post with style now replaces queued posts and is posted at once")
    func nowCoalesces() throws {
        let center = Scenario()
        try center.observe(one, "", "", .hold)
        try center.post("A", "1", style: .whenIdle)
        try center.post("A", "2", immediately: true, style: .asap)
        try center.post("B", "3", style: .asap)
        try center.suspend(one)
        #expect(try center.post("A", "4", coalescing: [.name]) == 1)
        #expect(center.objects(one) == ["4"], "immediately, as one of those that it replaces")
        center.postQueued(.asap)
        center.postQueued(.whenIdle)
        try center.resume(one)
        #expect(center.objects(one) == ["4", "3"])
        #expect(center.statistics.coalesced == 2)
    }

    @Test("Q7: only posts of one poster coalesce")
    func posters() throws {
        let center = Scenario()
        try center.observe(one)
        for poster in [two, three, two, three] {
            try center.post("A", style: .whenIdle, coalescing: [.name], from: poster)
        }
        center.postQueued(.whenIdle)
        #expect(center.received(one).map(\.poster) == [two, three])
        #expect(center.received(one).map(\.tag) == [3, 4])
    }

    @Test("Q7: queued posts of several posters are posted alternately")
    func fairness() throws {
        let center = Scenario()
        try center.observe(one)
        for number in 1...1000 { try center.post("A", "\(number)", style: .asap, from: two) }
        try center.post("B", style: .asap, from: three)
        center.postQueued(.asap, limit: 2)
        #expect(center.names(one) == ["A", "B"])
    }

    @Test("Q5: a post queued during a pass belongs to the next pass")
    func nextPass() throws {
        let center = Scenario()
        try center.observe(one)
        for number in 1...3 { try center.post("A", "\(number)", style: .whenIdle) }
        center.postQueued(.whenIdle, limit: 2)
        try center.post("A", "1", style: .whenIdle, coalescing: [.object])
        center.postQueued(.whenIdle)
        #expect(center.objects(one) == ["1", "2", "3", "1"])
    }

    @Test("Q7: the queued posts of a poster are posted after the poster has left the bus")
    func posterLeaves() throws {
        let center = Scenario()
        try center.observe(one)
        try center.observe(two)
        try center.post("A", style: .whenIdle, from: two)
        center.disappear(two)
        center.postQueued(.whenIdle)
        #expect(center.received(one).map(\.poster) == [two])
    }

    @Test("E1: a post beyond the limit of its poster's queue is refused and changes nothing")
    func limits() throws {
        let center = Scenario([.queuedPostsPerClient: 3])
        try center.observe(one)
        for number in 1...3 { try center.post("A", "\(number)", style: .whenIdle) }
        #expect(throws: CenterError.limitExceeded(.queuedPostsPerClient, value: 3)) {
            try center.post("A", "4", style: .whenIdle)
        }
        #expect(throws: CenterError.limitExceeded(.queuedPostsPerClient, value: 3)) {
            try center.post("B", "1", style: .asap, coalescing: [.name, .object])
        }
        try center.post("A", "4", style: .whenIdle, from: two)
        try center.post("A", "2", style: .whenIdle, coalescing: [.object])
        center.postQueued(.whenIdle)
        #expect(center.received(one).map(\.tag) == [1, 6, 3, 7], "posters take turns, coalescing makes room")
    }

    @Test("E1: the bytes of queued posts are limited for each poster and in total")
    func byteLimits() throws {
        let center = Scenario([.queuedPostBytesPerClient: 10_000, .queuedPostBytes: 15_000])
        try center.post("A", bytes: 8000, style: .asap)
        #expect(throws: CenterError.limitExceeded(.queuedPostBytesPerClient, value: 10_000)) {
            try center.post("A", bytes: 3000, style: .asap)
        }
        #expect(throws: CenterError.limitExceeded(.queuedPostBytes, value: 15_000)) {
            try center.post("A", bytes: 8000, style: .asap, from: two)
        }
        try center.post("A", bytes: 9000, style: .asap, coalescing: [.name])
        try center.post("A", bytes: 9000)
        #expect(center.statistics.queuedPosts == 1)
    }

    @Test("A hundred thousand queued posts coalesce, in pairs and all at once, and leave no state behind")
    func many() throws {
        let center = DistributedCenter()
        var effects: [Effect] = []
        let payload = Scenario.Payload(byteCount: 0, tag: 0)
        var options = PostOptions()
        options.postingStyle = .whenIdle
        func post(_ name: String, _ object: String) throws {
            _ = try center.post(
                name: name, object: object, userInfo: payload, options: options, from: one, effects: &effects)
        }
        options.coalescing = [.name, .object]
        let half: UInt64 = isQuick ? 2_000 : 50_000
        for _ in 0..<2 {
            for number in 0..<half { try post("A", "\(number)") }
        }
        #expect(center.statistics.queuedPosts == half)
        #expect(center.statistics.coalesced == half)
        options.coalescing = [.name]
        try post("A", "last")
        #expect(center.statistics.queuedPosts == 1)
        #expect(center.statistics.coalesced == 2 * half)
        center.postQueued(.whenIdle, limit: .max, effects: &effects)
        #expect(center.statistics.queuedPosts == 0)
        #expect(center.statistics.queuedPostBytes == 0)
    }

    @Test("E3: queued posts are restored in order after a restart, and posted ones are not")
    func comesBack() throws {
        let old = Scenario()
        old.center.remembersChanges = true
        try old.observe(one)
        try old.post("A", "1", style: .whenIdle)
        try old.post("A", "2", immediately: true, style: .asap)
        try old.post("B", "3", style: .asap)
        try old.post("A", "4", style: .whenIdle, coalescing: [.name])
        try old.post("C", "5", style: .whenIdle)
        try old.post("C", "6", coalescing: [.name])
        old.postQueued(.asap, limit: 1)
        var written: [Change] = []
        old.center.forEachRememberedChange { written.append($0) }
        for changes in [old.changes, written] {
            let new = Scenario()
            for change in changes { #expect(new.center.restore(change)) }
            new.finishRestoring()
            #expect(new.statistics.queuedPosts == 1)
            try new.suspend(one)
            new.postQueued(.whenIdle)
            #expect(new.objects(one).isEmpty)
            new.postQueued(.asap)
            #expect(new.objects(one) == ["4"])
        }
        #expect(old.objects(one) == ["6", "3"])
    }
}
