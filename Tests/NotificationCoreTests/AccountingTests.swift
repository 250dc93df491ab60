// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Who pays for what clients make the center hold.
@Suite("E4: accounting of shared limits", .limited)
struct AccountingTests {
    /// A client that was sent all that may be sent it without an answer, and answers nothing.
    private func stoppedClient(_ center: Scenario, _ client: ClientName, of process: UInt32, _ name: String) throws {
        try center.observe(client, name, "", .hold)
        center.identify(client, as: process)
        center.stop(client)
        let filler = try center.observe(client, "filler of \(client)")
        for _ in 1...128 { try center.post("filler of \(client)", immediately: true) }
        try center.remove(filler, of: client)
    }

    @Test("E4: the process that holds most loses notifications first, even if it has many connections")
    func manyConnectionsOfOneProcess() throws {
        let center = Scenario([.queuedBytes: 100_000])
        try center.observe(one, "mine", "", .hold)
        center.identify(one, as: 1)
        try center.suspend(one)
        try center.post(8, of: "mine", bytes: 4000)
        let hogs = (10..<40).map(client)
        for hog in hogs { try stoppedClient(center, hog, of: 2, "theirs") }
        try center.post(5, of: "theirs", bytes: 4000)
        #expect(center.statistics.queuedBytes <= 100_000)
        #expect(center.status(one)?.queued == 8)
        #expect(center.status(one)?.dropped == 0)
        let lost = hogs.map { center.status($0)?.dropped ?? 0 }
        #expect(lost.reduce(0, +) >= 30 * 5 - 17)
        #expect((lost.max() ?? 0) - (lost.min() ?? 0) <= 1, "of its connections the one with most pays: \(lost)")
        // Also when it is the other that grows.
        try center.post("mine", "9", bytes: 4000)
        #expect(center.status(one)?.queued == 9)
        try center.resume(one)
        #expect(center.objects(one) == (1...9).map(String.init))
        #expect(center.losses(one) == [])
    }

    @Test("E4: the usage of a connection moves to its process as soon as the process is known")
    func lateIdentification() throws {
        let center = Scenario([.queuedBytes: 60_000])
        for hog in [two, three] {
            try stoppedClient(center, hog, of: hog == two ? 20 : 30, "theirs")
        }
        try center.observe(one, "mine", "", .hold)
        try center.suspend(one)
        try center.post(5, of: "mine", bytes: 4000)
        try center.post(4, of: "theirs", bytes: 4000)
        #expect(center.statistics.dropped == 0)
        // One connection alone holds more than each of the others, but not more than both.
        center.identify(two, as: 2)
        center.identify(three, as: 2)
        center.identify(three, as: 2)
        try center.post(2, of: "mine", bytes: 4000)
        #expect(center.status(one)?.dropped == 0)
        #expect(center.status(two)?.dropped == 1)
        #expect(center.status(three)?.dropped == 0)
    }

    @Test("E4: a process gets at most 7/8 of the observers that the others do not use")
    func shares() throws {
        let center = Scenario([.observers: 160, .observersPerClient: 100])
        func register(_ client: ClientName, of process: UInt32) -> (count: Int, error: CenterError?) {
            for count in 0..<1000 {
                do {
                    try center.observe(client, "A")
                    center.identify(client, as: process)
                } catch {
                    return (count, error as? CenterError)
                }
            }
            return (1000, nil)
        }
        #expect(register(one, of: 1) == (100, .limitExceeded(.observersPerClient, value: 100)))
        // Seven eighths of all, in two connections.
        #expect(register(two, of: 1) == (40, .shareExceeded(.observers, value: 160)))
        // Of the twenty that are left again seven eighths.
        #expect(register(three, of: 3) == (17, .shareExceeded(.observers, value: 160)))
        #expect(register(client(4), of: 4) == (2, .shareExceeded(.observers, value: 160)))
        let refusal = CenterError.shareExceeded(.observers, value: 160)
        #expect(
            refusal.description
                == "over the limit observers = 160 of all processes together: a process may use at most 7/8 "
                + "of the part that the others do not use")
        // What goes makes room.
        center.disappear(two)
        #expect(register(client(5), of: 4).count > 30)
    }

    @Test("E4: a process gets at most its share of the limit of clients")
    func sharesOfConnections() throws {
        let center = Scenario([.clients: 64])
        var refused = 0
        for number in 1...64 {
            center.identify(client(number), as: 1)
            do {
                try center.observe(client(number), "A")
            } catch {
                refused += 1
            }
        }
        #expect(refused == 8)
        for number in 65...70 {
            center.identify(client(number), as: 2)
            try center.observe(client(number), "A")
        }
    }

    @Test("E4: a coalescing post no larger than the post it replaces is accepted even beyond the share")
    func replacingOverTheShare() throws {
        let center = Scenario([.queuedPostBytes: 100_000])
        func replace(bytes: Int) throws {
            try center.post("A", "11", bytes: bytes, style: .whenIdle, coalescing: [.name, .object], from: one)
        }
        for number in 11...70 { try center.post("A", "\(number)", bytes: 1000, style: .whenIdle, from: one) }
        #expect(center.statistics.queuedPostBytes == 60 * 1387)
        center.center.limits[.queuedPostBytes] = 83_680
        try replace(bytes: 1000)
        #expect(throws: CenterError.shareExceeded(.queuedPostBytes, value: 83_680)) { try replace(bytes: 1001) }
        try replace(bytes: 999)
    }

    @Test("E1, E4: limits in bytes are exact to the byte, also for the first registration or post")
    func exactBytes() throws {
        for (limit, isAccepted) in [(513, true), (512, false)] as [(UInt64, Bool)] {
            let center = Scenario([.observerBytesPerClient: limit])
            #expect(((try? center.observe(one, "A")) != nil) == isAccepted)
        }
        for (limit, isAccepted) in [(428, true), (427, false)] as [(UInt64, Bool)] {
            let center = Scenario([.queuedPostBytesPerClient: limit])
            #expect(((try? center.post("A", bytes: 43, style: .asap)) != nil) == isAccepted)
        }
        let center = Scenario([.queuedPostsPerClient: 0])
        #expect(throws: CenterError.limitExceeded(.queuedPostsPerClient, value: 0)) {
            try center.post("A", style: .asap)
        }
    }

    @Test("E4: the names and objects of registrations count against the limits of observer bytes")
    func textsOfRegistrations() throws {
        let center = Scenario([.observerBytesPerClient: 10_000])
        let name = String(repeating: "n", count: 1000)
        let object = String(repeating: "o", count: 3000)
        let first = try center.observe(one, name, object)
        try center.observe(one, name, object)
        #expect(throws: CenterError.limitExceeded(.observerBytesPerClient, value: 10_000)) {
            try center.observe(one, name, object)
        }
        try center.observe(two, name, object)
        try center.remove(first, of: one)
        try center.observe(one, name, object)
        let all = Scenario([.observerBytes: 10_000])
        for client in [one, two] { try all.observe(client, name, object) }
        #expect(throws: CenterError.limitExceeded(.observerBytes, value: 10_000)) {
            try all.observe(three, name, object)
        }
    }

    @Test("E4: a held notification counts its lists of observers until they are removed")
    func listsOfObservers() throws {
        let center = Scenario()
        let observers = try (1...100).map { _ in try center.observe(one, "A", "", .hold) }
        try center.suspend(one)
        try center.post("A")
        let withList = center.statistics.queuedBytes
        for observer in observers.dropLast() { try center.remove(observer, of: one) }
        #expect(withList == center.statistics.queuedBytes + 800)
        // For those that coalesce there is a second list.
        let coalescing = try (1...100).map { _ in try center.observe(two, "B") }
        try center.suspend(two)
        let before = center.statistics.queuedBytes
        try center.post("B")
        let withLists = center.statistics.queuedBytes - before
        for observer in coalescing.dropLast() { try center.remove(observer, of: two) }
        #expect(withLists == center.statistics.queuedBytes - before + 1600)
    }

    @Test("E4: queued posts are charged until they are posted, even if their poster has left")
    func postsOfThoseWhoLeft() throws {
        let center = Scenario()
        try center.observe(one, "other")
        try center.post("A", style: .whenIdle, from: one)
        try center.post("A", style: .asap, from: two)
        center.disappear(one)
        try center.center.checkInvariants()
        #expect(center.statistics.queuedPosts == 2)
        #expect(center.statistics.queuedPostBytes > 0)
        center.postQueued(.asap)
        center.postQueued(.whenIdle)
        try center.center.checkInvariants()
        #expect(center.statistics.queuedPostBytes == 0)
    }

    @Test("E4: a process can't use all of the limit for queued posts")
    func sharesOfPosts() throws {
        let center = Scenario([.queuedPostBytes: 100_000])
        func fill(from poster: ClientName) -> Int {
            for count in 0..<1000 {
                do { try center.post("A", bytes: 1000, style: .whenIdle, from: poster) } catch { return count }
            }
            return 1000
        }
        let first = fill(from: one)
        #expect(first > 50 && first * 1257 <= 87_500)
        #expect(fill(from: two) > 0)
    }

    @Test("E4: a registration costs the bytes of its name and object, and an absent name or object costs none")
    func registrations() throws {
        func cost(_ name: String, _ object: String) throws -> UInt64 {
            let center = Scenario()
            try center.observe(one, "", "")
            let before = UInt64(center.center.heldBytes)
            try center.observe(one, name, object)
            return UInt64(center.center.heldBytes) - before
        }
        let any = try cost("", "")
        #expect(try cost("A", "") == any + 1 && cost("", "Ä") == any + 2 && cost("ABC", "DE") == any + 5)
    }

    @Test("E4, R4: a retained at-exit post is charged to the process of its poster", arguments: [false, true])
    func valueAtExit(isReplaced: Bool) throws {
        let center = Scenario()
        center.identify(one, as: 1)
        if isReplaced { try center.post("State", retention: Retention(), from: one) }
        try center.post("State", style: .atExit, retention: Retention(), from: one)
        center.disappear(one)
        center.postQueued(.asap)
        #expect(center.values() == ["State"])
        try center.center.checkInvariants()
        center.identify(two, as: 1)
        try center.center.checkInvariants()
    }

    @Test("E4, R4: retained at-exit posts stay within the share of their poster's process")
    func valuesAtExit() throws {
        let center = Scenario([.retained: 64])
        center.identify(one, as: 1)
        for number in 1...60 {
            try center.post("Value \(number)", style: .atExit, retention: Retention(), from: one)
        }
        center.disappear(one)
        center.postQueued(.asap)
        #expect(center.values().count == 56)
        #expect(center.statistics.unretained == 4)
        try center.center.checkInvariants()
        center.identify(two, as: 1)
        #expect(throws: CenterError.shareExceeded(.retained, value: 64)) {
            try center.post("Another", retention: Retention(), from: two)
        }
        try center.post("Another", retention: Retention(), from: three)
        center.disappear(two)
        try center.center.checkInvariants()
    }

    /// How a center takes up from another.
    enum Succession: CaseIterable {
        case none
        case nextConnection
        case nextProcess
        case nextProcessOfRewrittenLog
    }

    @Test(
        "E4, R4, E5: the limit of values per client applies to the at-exit posts of a poster that has left",
        arguments: Succession.allCases)
    func limitAtExit(succession: Succession) throws {
        let center = Scenario([.retainedPerClient: 2])
        center.center.remembersChanges = true
        for number in 1...3 {
            try center.post("Value \(number)", style: .atExit, retention: Retention(), from: one)
        }
        center.disappear(one)
        center.postQueued(.asap, limit: 1)
        let next = succession == .none ? center : Scenario([.retainedPerClient: 2])
        switch succession {
        case .none: break
        case .nextConnection:
            var effects: [Effect] = []
            center.center.connectionEnded(effects: &effects)
            next.center.takeOver(center.center)
        case .nextProcess: for change in center.changes { #expect(next.center.restore(change)) }
        case .nextProcessOfRewrittenLog:
            center.center.forEachRememberedChange { #expect(next.center.restore($0)) }
        }
        if succession != .none { next.finishRestoring() }
        next.postQueued(.asap)
        #expect(next.values() == ["Value 1", "Value 2"])
        try next.center.checkInvariants()
    }
}
