// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What waits for a client with many observers costs what it is, not that times the observers. Counted, not timed.
@Suite("The cost of waiting notifications", .limited)
struct HoldingCostTests {
    private static let observers = 300
    private static let posts = 200
    let center = Scenario()

    private func observe(_ behavior: SuspensionBehavior) throws -> [ObserverID] {
        try (0..<Self.observers).map { _ in try center.observe(one, "A", "", behavior) }
    }

    /// How many lists of observers lie in memory for what the client received.
    private var listsInMemory: Int {
        Set(center.received(one).map { $0.observers.withUnsafeBufferPointer(\.baseAddress) }).count
    }

    @Test(
        "E8: a post takes a step to find each observer, and one to put it into the list of its client",
        .enabled(if: StepMeter.isCounting))
    func steps() throws {
        let observers = try observe(.coalesce)
        var steps = 0
        center.center.meter.eventEnded = { steps += $1 }
        try center.post("A")
        #expect(center.received(one).map(\.observers) == [observers])
        #expect(steps >= 2 * Self.observers)
    }

    @Test("E8: the steps of an invariant check do not count for the next event", .enabled(if: StepMeter.isCounting))
    func checks() throws {
        _ = try observe(.coalesce)
        try center.center.checkInvariants()
        var steps: [Int] = []
        center.center.meter.eventEnded = { steps.append($1) }
        // Of a connection that nobody knows: there is nothing to do.
        center.answer(two)
        #expect(!steps.isEmpty && steps.allSatisfy { $0 == 0 })
    }

    @Test("C11, E4: held notifications for equal observers share one list of observers")
    func held() throws {
        let observers = try observe(.hold)
        try center.suspend(one)
        for _ in 0..<Self.posts { try center.post("A") }
        try center.resume(one)
        #expect(center.received(one).map(\.observers) == Array(repeating: observers, count: Self.posts))
        #expect(listsInMemory == 1)
    }

    @Test("C11, E4: notifications that wait for a client to read share one list of observers")
    func due() throws {
        let observers = try observe(.coalesce)
        center.stop(one)
        for _ in 0..<Self.posts { try center.post("A") }
        let sent = center.received(one).count
        #expect(sent < Self.posts)
        center.clear()
        center.goOn(one)
        #expect(center.received(one).map(\.observers) == Array(repeating: observers, count: Self.posts - sent))
        #expect(listsInMemory == 1)
    }

    @Test(
        "C11, E4: waiting notifications still share one list after the removal of an observer",
        arguments: [false, true])
    func removed(isSuspended: Bool) throws {
        let observers = try observe(.hold)
        if isSuspended { try center.suspend(one) } else { center.stop(one) }
        for _ in 0..<Self.posts { try center.post("A") }
        try center.remove(observers[7], of: one)
        center.clear()
        if isSuspended { try center.resume(one) } else { center.goOn(one) }
        let rest = observers.filter { $0 != observers[7] }
        #expect(center.received(one).map(\.observers).allSatisfy { $0 == rest })
        #expect(!center.received(one).isEmpty)
        #expect(listsInMemory == 1)
    }

    @Test("S1, E4: a coalescing notification is replaced for all its observers at once, and its space is reused")
    func coalescing() throws {
        let observers = try observe(.coalesce)
        try center.suspend(one)
        for _ in 0..<Self.posts { try center.post("A") }
        #expect(center.status(one)?.queued == 1)
        #expect(center.statistics.coalesced == UInt64(Self.posts - 1))
        // One entry for each name and object, whatever it has of observers; and no more room than for these.
        try center.center.checkInvariants()
        for object in 0..<500 { try center.post("A", "\(object % 5)") }
        #expect(center.status(one)?.queued == 6)
        try center.center.checkInvariants()
        try center.resume(one)
        #expect(center.objects(one) == ["", "0", "1", "2", "3", "4"])
        #expect(center.received(one).map(\.observers) == Array(repeating: observers, count: 6))
    }

    @Test("S1: a hold observer gets the older and the newer notification, and a coalesce observer only the newer")
    func mixed() throws {
        let holding = try center.observe(one, "A", "", .hold)
        let coalescing = try [center.observe(one, "A"), center.observe(one, "A")]
        try center.suspend(one)
        try center.post("A")
        let late = try center.observe(one, "A")
        try center.post("A")
        try center.resume(one)
        #expect(center.received(one).map(\.observers) == [[holding], [holding] + coalescing + [late]])
        #expect(center.statistics.coalesced == 0, "it is still there for one")
    }

    @Test("E4: a full queue frees the space of its oldest notification for each new one")
    func overflow() throws {
        center.center.limits[.queuedPerClient] = 100
        try center.observe(one, "", "", .hold)
        center.stop(one)
        try center.post(130, of: "A")
        try center.suspend(one)
        for _ in 0..<20 {
            try center.post(50, of: "A")
            try center.center.checkInvariants()
        }
        #expect(center.status(one)?.queued == 100)
    }
}
