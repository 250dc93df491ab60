// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// What is more than one event may do, in parts (E8).
@Suite("E8: work in slices", .limited)
struct PartsTests {
    private let poster: ClientName = ":1.9"
    private let part = DistributedCenter.sliceSize

    private func scenario(posts: Int, style: PostingStyle = .asap) throws -> Scenario {
        let center = Scenario()
        center.center.remembersChanges = true
        try center.observe(one)
        for number in 0..<posts {
            try center.post("A", "\(number)", immediately: number == 0 && style == .asap, style: style, from: poster)
        }
        return center
    }

    /// Has a post take the place of those of its name.
    private func removeCoalesced(_ center: Scenario, style: PostingStyle = .whenIdle) throws -> Bool {
        try center.perform { effects throws(CenterError) in
            try center.center.removeCoalesced(
                name: "A", object: "new", userInfo: Scenario.Payload(byteCount: 10, tag: 0),
                options: options(style), from: poster, effects: &effects)
        }
    }

    private func options(_ style: PostingStyle) -> PostOptions {
        var options = PostOptions()
        options.postingStyle = style
        options.coalescing = [.name]
        return options
    }

    private func withdraw(_ center: Scenario, _ name: String = "") -> (count: Int, isMore: Bool) {
        center.perform { effects in
            center.center.withdrawPosts(of: poster, name: name, object: "", effects: &effects)
        }
    }

    private func restored(_ center: Scenario) throws -> DistributedCenter {
        let next = DistributedCenter()
        for change in center.changes { #expect(next.restore(change)) }
        try next.checkInvariants()
        return next
    }

    @Test(
        "Q3: posts are withdrawn in slices; between slices none of them is posted, and those of others are",
        arguments: ["", "A"])
    func withdrawal(name: String) throws {
        let center = try scenario(posts: 2 * part + 10)
        #expect(withdraw(center, name) == (part, true))
        #expect(center.center.isRemovalInSlices && !center.center.hasQueuedPosts(.asap))
        center.postQueued(.asap)
        #expect(center.names(one).isEmpty)
        try center.post("B", style: .asap, from: two)
        center.postQueued(.asap)
        #expect(center.names(one) == ["B"])
        try center.center.checkInvariants()
        #expect(
            try restored(center).queuedPosts == 2 * part + 10, "a crash takes nothing with it that was not answered")
        #expect(withdraw(center, name) == (part, true) && withdraw(center, name) == (10, false))
        #expect(!center.center.isRemovalInSlices && center.statistics.queuedPosts == 0)
        #expect(center.statistics.queuedPostBytes == 0)
        #expect(try restored(center).queuedPosts == 0)
    }

    @Test("Q3: posts that remain after a withdrawal in slices are posted in order")
    func rest() throws {
        let center = try scenario(posts: part + 5)
        for number in 1...3 { try center.post("B", "\(number)", style: .asap, from: poster) }
        #expect(withdraw(center, "A") == (part, true) && withdraw(center, "A") == (5, false))
        #expect(center.center.hasQueuedPosts(.asap))
        center.postQueued(.asap)
        #expect(center.objects(one) == ["1", "2", "3"])
    }

    @Test(
        "Q3, Q7: a post that replaces many posts does so in slices, and takes over the most urgent style",
        arguments: [PostingStyle.now, .whenIdle])
    func replacing(style: PostingStyle) throws {
        let center = try scenario(posts: 2 * part + 10)
        try center.suspend(one)
        #expect(try !removeCoalesced(center, style: style))
        center.postQueued(.asap)
        #expect(center.names(one).isEmpty && center.center.isRemovalInSlices)
        try center.center.checkInvariants()
        #expect(try restored(center).queuedPosts == 2 * part + 10)
        #expect(try !removeCoalesced(center, style: style))
        #expect(try removeCoalesced(center, style: style), "the rest is no more than a part")
        try center.post("A", "new", style: style, coalescing: [.name], from: poster)
        #expect(!center.center.isRemovalInSlices)
        center.postQueued(.asap)
        // The style and the urgency of the most urgent, though these were in the first part.
        #expect(center.objects(one) == ["new"])
        #expect(center.statistics.coalesced == UInt64(2 * part + 10) && center.statistics.posted == 1)
        #expect(try restored(center).queuedPosts == 0)
        try center.center.checkInvariants()
    }

    @Test("Q3: few coalesced posts are removed in one slice, and a refused post removes none")
    func notInParts() throws {
        let few = try scenario(posts: part)
        #expect(try removeCoalesced(few) && few.statistics.queuedPosts == UInt64(part))
        let many = try scenario(posts: part + 1)
        many.center.limits[.queuedPostBytesPerClient] = 5
        #expect(throws: CenterError.limitExceeded(.queuedPostBytesPerClient, value: 5)) { try removeCoalesced(many) }
        #expect(many.statistics.queuedPosts == UInt64(part + 1) && !many.center.isRemovalInSlices)
    }

    @Test("Q3: a coalescing post is no longer refused after its first slice of removals")
    func accepted() throws {
        let center = try scenario(posts: part + 1)
        #expect(try !removeCoalesced(center))
        center.center.limits[.queuedPostBytesPerClient] = 5
        center.center.limits[.retainedPerClient] = 0
        try center.post(
            "A", "new", style: .whenIdle, coalescing: [.name], retention: Retention(), from: poster)
        center.postQueued(.asap)
        #expect(center.objects(one) == ["new"])
        #expect(center.statistics.unretained == 1 && center.statistics.retained == 0)
    }

    @Test("R4: at-exit posts are released in one bounded step when their poster leaves, in order")
    func exit() throws {
        let center = try scenario(posts: 3000, style: .atExit)
        try center.post("First", style: .asap, from: poster)
        var most = 0
        center.center.meter.eventEnded = { _, steps in most = max(most, steps) }
        center.disappear(poster)
        #expect(most < 100)
        center.center.meter.eventEnded = nil
        var written: [Change] = []
        center.center.forEachRememberedChange { written.append($0) }
        let next = DistributedCenter()
        for change in written { #expect(next.restore(change)) }
        #expect(next.hasQueuedPosts(.asap) && next.queuedPosts == 3001)
        center.postQueued(.asap)
        #expect(center.objects(one) == [""] + (0..<3000).map(String.init))
    }

    @Test("Q7: one event makes fewer queued posts if many observers match")
    func matched() throws {
        let center = Scenario()
        for _ in 0..<500 { try center.observe(one, "A") }
        for number in 0..<10 { try center.post("A", "\(number)", style: .asap) }
        center.postQueued(.asap, limit: 10)
        #expect(center.statistics.queuedPosts == 7)
        center.postQueued(.asap, limit: 2)
        #expect(center.statistics.queuedPosts == 5)
    }

    @Test(
        "D8: a client with much state leaves in slices, is sent no messages meanwhile, and leaves no state behind",
        arguments: [false, true])
    func leaving(isSuspended: Bool) throws {
        let center = Scenario()
        center.center.remembersChanges = true
        for number in 0..<3 { try center.observe(one, "Held\(number)", "", .hold) }
        if isSuspended {
            try center.suspend(one)
            for number in 0..<5000 { try center.post("Held\(number % 3)") }
        }
        for number in 0..<2000 { try center.observe(one, "Name\(number)") }
        try center.observe(one, "A")
        try center.observe(two, "A")
        for number in 0..<2000 {
            try center.post("V", "\(number)", retention: Retention(whileConnected: true), from: one)
        }
        #expect(center.center.leavesInSlices(one) && !center.center.leavesInSlices(two))
        center.clear()
        var parts = 0
        while center.perform({ effects in center.center.removeSlice(one, effects: &effects) }) {
            parts += 1
            try center.post("A")
            #expect(center.received(one).isEmpty)
            try center.center.checkInvariants()
        }
        #expect(parts == (isSuspended ? 4 : 2) && center.received(two).count == parts)
        center.disappear(one)
        #expect(center.statistics.observers == 1 && center.statistics.retained == 0 && center.statistics.queued == 0)
        try center.center.checkInvariants()
        #expect(!center.perform { effects in center.center.removeSlice(one, effects: &effects) })
    }

    @Test("R3: values are removed in slices, and a value posted between two slices remains")
    func values() throws {
        let center = Scenario()
        for number in 0..<part + 10 {
            try center.post("V", "\(number)", retention: Retention(), from: number.isMultiple(of: 2) ? one : two)
        }
        let newest = center.center.lastNumbers.serial
        func remove() -> (count: Int, isMore: Bool) {
            center.perform { effects in
                center.center.removeRetained(name: "V", object: "", through: newest, effects: &effects)
            }
        }
        #expect(remove() == (part, true))
        try center.post("V", "later", retention: Retention())
        #expect(remove() == (10, false) && center.statistics.retained == 1)
    }
}
