// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// Posts that wait until their poster leaves the bus.
@Suite("R4: at-exit posts", .limited)
struct AtExitTests {
    private let poster: ClientName = ":1.9"

    private func scenario(_ limits: [Limits.Key: UInt64] = [:]) throws -> Scenario {
        let center = Scenario(limits)
        center.center.remembersChanges = true
        try center.observe(one)
        return center
    }

    /// A new center with what the log of this one has, and one with the log written anew.
    private func restored(_ center: Scenario) -> [Scenario] {
        var written: [Change] = []
        center.center.forEachRememberedChange { written.append($0) }
        return [center.changes, written].map { changes in
            let next = Scenario()
            for change in changes { #expect(next.center.restore(change)) }
            let last = center.center.lastNumbers
            next.center.restoreNumbers(lastSerial: last.serial, lastObserver: last.observer)
            next.finishRestoring()
            return next
        }
    }

    @Test("An at-exit post waits until its poster leaves, and is posted after the poster's asap posts")
    func leaves() throws {
        let center = try scenario()
        #expect(try center.post("Will", "1", style: .atExit, from: poster) == 0)
        try center.post("Soon", style: .asap, from: poster)
        try center.post("Will", "2", style: .atExit, from: poster)
        #expect(center.watched.contains(poster), "its leaving is noticed")
        center.postQueued(.asap, limit: 1)
        try center.post("Soon", style: .asap, from: poster)
        center.postQueued(.whenIdle)
        center.disappear(two)
        #expect(!center.center.hasQueuedPosts(.whenIdle) && center.statistics.queuedPosts == 3)
        center.clear()
        center.disappear(poster)
        #expect(center.center.hasQueuedPosts(.asap) && center.names(one).isEmpty)
        center.postQueued(.asap)
        #expect(center.names(one) == ["Soon", "Will", "Will"] && center.objects(one) == ["", "1", "2"])
        #expect(center.received(one).allSatisfy { $0.poster == poster })
        #expect(center.statistics.queuedPosts == 0 && center.statistics.queuedPostBytes == 0)
        #expect(center.center.peers[poster] == nil, "E4: nothing is left of it")
        try center.center.checkInvariants()
    }

    @Test("Q3: at-exit posts coalesce among each other, and a coalescing post of another style replaces them")
    func coalesces() throws {
        let center = try scenario()
        try center.post("State", "will", style: .whenIdle, from: poster)
        for number in 1...3 {
            try center.post("State", "\(number)", style: .atExit, coalescing: [.name], from: poster)
        }
        #expect(center.statistics.queuedPosts == 2, "what is to be heard while the poster is there stays")
        #expect(center.statistics.coalesced == 2)
        center.postQueued(.whenIdle)
        #expect(center.objects(one) == ["will"])
        // The more urgent style, as ever.
        try center.post("State", "4", style: .asap, coalescing: [.name], from: poster)
        #expect(center.statistics.queuedPosts == 1)
        center.postQueued(.asap)
        try center.post("State", "5", style: .atExit, from: poster)
        try center.post("State", "6", coalescing: [.name], from: poster)
        center.disappear(poster)
        center.postQueued(.asap)
        #expect(center.objects(one) == ["will", "4", "6"])
        #expect(center.statistics.coalesced == 4)
    }

    @Test("Q3: a poster withdraws its own queued posts of any style, and no posts of others")
    func withdrawn() throws {
        let center = try scenario()
        for poster in [poster, two] {
            for (name, object) in [("A", "x"), ("A", "y"), ("B", "x"), ("B", "")] {
                try center.post(name, object, style: .atExit, from: poster)
                try center.post(name, object, style: .whenIdle, from: poster)
            }
        }
        #expect(center.withdraw("A", "x", of: poster) == 2 && center.withdraw("A", "x", of: poster) == 0)
        #expect(center.withdraw("A", of: poster) == 2)
        #expect(center.withdraw("", "x", of: poster) == 2)
        #expect(center.withdraw(of: three) == 0)
        for next in restored(center) { #expect(next.statistics.queuedPosts == 10) }
        #expect(center.withdraw(of: poster) == 2)
        center.disappear(poster)
        #expect(!center.center.hasQueuedPosts(.asap) && center.statistics.queuedPosts == 8)
        try center.center.checkInvariants()
        center.disappear(two)
        center.postQueued(.asap)
        center.postQueued(.whenIdle)
        #expect(center.received(one).count == 8)
        #expect(center.statistics.queuedPostBytes == 0)
    }

    @Test("E3: an at-exit post survives a restart, and is posted if its poster left meanwhile")
    func comesBack() throws {
        let center = try scenario()
        try center.post("A", style: .atExit, from: poster)
        try center.post("B", style: .atExit, from: two)
        center.disappear(two)
        for next in restored(center) {
            #expect(next.watched.contains(poster))
            #expect(next.center.hasQueuedPosts(.asap) && next.statistics.queuedPosts == 2)
            next.postQueued(.asap)
            #expect(next.names(one) == ["B"])
            next.disappear(poster)
            next.postQueued(.asap)
            #expect(next.names(one) == ["B", "A"])
        }
    }

    @Test("R4: at-exit posts whose poster's other posts were replaced alternate with the posts of other posters")
    func onePlace() throws {
        let center = try scenario()
        try center.post("A", style: .whenIdle, from: poster)
        try center.post("B", style: .asap, from: poster)
        try center.post("C", "left", style: .atExit, from: poster)
        try center.post("D", "left", style: .atExit, from: poster)
        try center.post("E", style: .asap, from: two)
        try center.post("F", style: .asap, from: two)
        try center.post("G", coalescing: [.object], from: poster)
        center.disappear(poster)
        center.postQueued(.whenIdle)
        try center.center.checkInvariants()
        center.postQueued(.asap)
        #expect(center.names(one) == ["G", "E", "C", "F", "D"])
    }

    @Test(
        "R4: an at-exit post is made behind all other queued posts of its poster, also coalesced ones")
    func behindAllElse() throws {
        let center = try scenario()
        try center.post("A", "left", style: .atExit, from: poster)
        try center.post("B", style: .whenIdle, from: poster)
        try center.post("B", style: .asap, coalescing: [.name], from: poster)
        center.disappear(poster)
        center.postQueued(.whenIdle)
        try center.post("C", style: .asap, from: two)
        center.postQueued(.asap)
        #expect(center.names(one) == ["B", "C", "A"])
    }

    @Test("E3: an at-exit post whose poster is missing in the recovery log is posted, and only once")
    func damaged() throws {
        let center = try scenario()
        try center.post("A", style: .atExit, from: poster)
        let next = Scenario()
        next.center.remembersChanges = true
        for change in center.changes {
            if case .client(poster, _) = change { continue }
            _ = next.center.restore(change)
        }
        next.finishRestoring()
        next.postQueued(.asap)
        #expect(next.names(one) == ["A"])
        let last = Scenario()
        for change in center.changes + next.changes { _ = last.center.restore(change) }
        last.finishRestoring()
        #expect(last.statistics.queuedPosts == 0)
    }

    @Test(
        "E3: a record that a poster has left is valid for a client, and for a connection with at-exit posts",
        arguments: 0...2)
    func exitFits(count: Int) throws {
        let center = try scenario()
        for number in 0..<count { try center.post("A", "\(number)", style: .atExit, from: poster) }
        let next = Scenario()
        for change in center.changes {
            if case .client(poster, _) = change { continue }
            #expect(next.center.restore(change))
        }
        #expect(next.center.restore(.clientGone(poster)) == (count > 0))
        #expect(!next.center.restore(.clientGone(poster)), "it has left already")
        #expect(next.center.restore(.clientGone(one)))
    }

    @Test("R1: an at-exit post may be retained, and its expiry counts from the exit")
    func retained() throws {
        let center = try scenario()
        try center.post("Gone", style: .atExit, retention: Retention(), expiresAfter: 60, from: poster)
        #expect(center.values().isEmpty)
        center.seconds += 1000
        center.disappear(poster)
        center.postQueued(.asap)
        #expect(center.values() == ["Gone"] && center.names(one) == ["Gone"])
        center.seconds += 59
        #expect(center.values() == ["Gone"])
        center.seconds += 2
        #expect(center.values().isEmpty)
    }

    @Test("E1: at-exit posts count against the limit of queued posts, and a post beyond a limit is refused")
    func limits() throws {
        let center = try scenario([.queuedPostsPerClient: 2, .clients: 2])
        try center.post("A", style: .atExit, from: poster)
        try center.post("B", style: .whenIdle, from: poster)
        #expect(throws: CenterError.limitExceeded(.queuedPostsPerClient, value: 2)) {
            try center.post("C", style: .atExit, from: poster)
        }
        try center.post("A", style: .atExit, coalescing: [.name], from: poster)
        #expect(throws: CenterError.limitExceeded(.clients, value: 2)) {
            try center.post("A", style: .atExit, from: two)
        }
        #expect(center.statistics.queuedPosts == 2)
        try center.center.checkInvariants()
    }
}
