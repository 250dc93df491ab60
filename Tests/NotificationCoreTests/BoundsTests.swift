// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Everything that a client can grow is bounded, and what is refused changes nothing.
@Suite("Limits of clients, observers, names and objects", .limited)
struct BoundsTests {
    /// An event that a limit refuses.
    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let limits: [Limits.Key: UInt64]
        let error: CenterError
        let event: @Sendable (Scenario) throws -> Void

        init(
            _ description: String, _ key: Limits.Key, _ value: UInt64,
            _ event: @escaping @Sendable (Scenario) throws -> Void
        ) {
            testDescription = description
            limits = [key: value]
            error = .limitExceeded(key, value: value)
            self.event = event
        }
    }

    static let refused: [Case] = [
        Case("a client too many", .clients, 2) { try $0.observe(three, "A") },
        Case("a suspended client too many", .clients, 2) { try $0.suspend(three) },
        Case("an observer too many in all", .observers, 3) { try $0.observe(one, "A") },
        Case("an observer too many of a new client", .observers, 3) { try $0.observe(three, "A") },
        Case("an observer too many of one client", .observersPerClient, 2) { try $0.observe(one, "A") },
        Case("too long a name of an observer", .nameLength, 4) { try $0.observe(one, "12345") },
        Case("too long a name in bytes", .nameLength, 4) { try $0.observe(three, "\u{1F514}!") },
        Case("too long an object of an observer", .objectLength, 4) { try $0.observe(one, "A", "12345") },
        Case("too long a name of a post", .nameLength, 4) { try $0.post("12345") },
        Case("too long an object of a post", .objectLength, 4) { try $0.post("A", "12345") },
    ]

    @Test(
        "E1: a call beyond a limit gets an error with the key and value of the limit, and changes no state",
        arguments: refused)
    func refusal(_ refused: Case) throws {
        let center = Scenario(refused.limits)
        try center.observe(one, "A", "", .hold)
        try center.observe(one, "B", "", .hold)
        let last = try center.observe(two, "A", "", .hold)
        try center.suspend(one)
        try center.post("A")
        let before = center.statistics
        let happened = [one, two, three].map { center.happened($0) }
        let probes = center.probes

        #expect(throws: refused.error) { try refused.event(center) }
        #expect(center.statistics == before)
        #expect([one, two, three].map { center.happened($0) } == happened)
        #expect(center.probes == probes)
        #expect(center.watched == [one, two])
        #expect(center.status(three) == nil)

        // Not even a number was used up.
        for (key, _) in refused.limits { center.center.limits[key] = 1000 }
        #expect(try center.observe(two, "C").rawValue == last.rawValue + 1)
        try center.post("C")
        #expect(center.received(two).last?.serial == 2)
    }

    @Test("E1: calls exactly at a limit are accepted")
    func justWithin() throws {
        let center = Scenario([
            .clients: 1, .observers: 2, .observersPerClient: 2, .nameLength: 4, .objectLength: 4,
        ])
        try center.observe(one, "1234", "1234")
        try center.observe(one, "\u{1F514}", "\u{1F514}")
        #expect(try center.post("1234", "1234") == 1)
        #expect(try center.post("\u{1F514}", "\u{1F514}") == 1)
    }

    @Test("E1: removed observers and departed clients free space within the limits")
    func roomAgain() throws {
        let center = Scenario([.clients: 1, .observers: 1, .observersPerClient: 1])
        let observer = try center.observe(one, "A")
        try center.remove(observer, of: one)
        try center.observe(one, "B")
        #expect(center.removeAll(of: one) == 1)
        try center.observe(one, "C")
        center.disappear(one)
        try center.observe(two, "D")
    }

    @Test("E1: a lowered limit removes no state, and applies to later calls")
    func lowerLimits() throws {
        let center = Scenario()
        for name in ["A", "B", "C"] { try center.observe(one, name, "", .hold) }
        try center.suspend(one)
        try center.post(5, of: "A")
        for key in Limits.Key.allCases where key != .inFlightBytes { center.center.limits[key] = 1 }
        #expect(center.statistics.observers == 3)
        #expect(center.status(one)?.queued == 5)
        #expect(throws: CenterError.limitExceeded(.observers, value: 1)) { try center.observe(one, "D") }
        try center.post("A")
        #expect(center.received(one).count == 6, "over the limit, so it is flushed to a client that reads")
        #expect(center.losses(one) == [])
    }
}
