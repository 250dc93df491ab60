// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

@Suite("E4: limit of total memory", .limited)
struct MemoryTests {
    private let one = client(1)
    private let two = client(2)
    private let three = client(3)
    private static let memory: UInt64 = 800_000
    /// The part that one kind can't use up alone.
    private static let most: UInt64 = memory - memory / 8
    private static let refusals = [
        CenterError.limitExceeded(.memoryBytes, value: memory), .shareExceeded(.memoryBytes, value: memory),
    ]

    private func scenario() -> Scenario {
        let center = Scenario([.memoryBytes: Self.memory])
        for number in 1...9 { center.identify(client(number), as: UInt32(number)) }
        return center
    }

    /// Does something until it is refused. Returns how often it succeeded.
    private func fill(_ action: (Int) throws -> Void) -> Int {
        for count in 0..<100_000 {
            do {
                try action(count)
            } catch {
                #expect(Self.refusals.contains { $0 == error as? CenterError }, "\(error)")
                return count
            }
        }
        Issue.record("nothing is ever refused")
        return 0
    }

    enum Kind: CaseIterable {
        case observers, posts, values

        func take(_ center: Scenario, _ client: ClientName, _ number: Int) throws {
            switch self {
            case .observers: try center.observe(client, "A\(number)")
            case .posts: try center.post("A", "\(number)", bytes: 500, style: .whenIdle, from: client)
            case .values: try center.post("V", "\(client) \(number)", bytes: 500, retention: Retention(), from: client)
            }
        }
    }

    @Test(
        "E4: memory of every kind remains within the total, and a process leaves an eighth of it to others",
        arguments: Kind.allCases)
    func total(kind: Kind) throws {
        let center = scenario()
        let first = fill { try kind.take(center, one, $0) }
        #expect(first > 0)
        let taken = center.statistics.memoryBytes
        // Besides connections, which can't be refused.
        #expect(taken <= Self.most / 8 * 7 + 1 + 2 * 1280)
        #expect(taken > Self.most / 8 * 6)
        let second = fill { try kind.take(center, two, $0) }
        #expect(second > 0 && second < first / 4)
        #expect(center.statistics.memoryBytes > taken && center.statistics.memoryBytes <= Self.most)
        // Other kinds have no more room than that.
        for other in Kind.allCases { _ = fill { try other.take(center, three, 1000 + $0) } }
        #expect(center.statistics.memoryBytes <= Self.most)
        try center.center.checkInvariants()
    }

    @Test("E4: calls beyond the memory limit are not kept, except for the first calls of an account")
    func calls() throws {
        let center = scenario()
        var number = 0
        while center.mayKeep(1000, of: one), number < 2000 {
            center.keepCall(1000, of: one)
            number += 1
        }
        #expect(number > 500 && center.statistics.memoryBytes <= Self.most)
        for number in 2...6 {
            while center.mayKeep(1000, of: client(number)) { center.keepCall(1000, of: client(number)) }
        }
        #expect(center.statistics.memoryBytes <= Self.memory)
        #expect(center.mayKeep(1000, of: client(7)))
    }

    @Test("E4: the largest queue gives way to other state, down to an eighth of memory, and its losses are reported")
    func givingWay() throws {
        let center = scenario()
        for client in [one, two] { try center.observe(client, client == one ? "A" : "B") }
        center.stop(one)
        center.stop(two)
        try center.post(5, of: "B", bytes: 300)
        try center.post(2000, of: "A", bytes: 300)
        center.reclaimMemory()
        #expect(center.statistics.memoryBytes <= Self.memory)
        let waiting = center.statistics.queuedBytes
        #expect(waiting > Self.memory / 10 * 9)
        let dropped = try #require(center.status(one)?.dropped)
        _ = fill { number in
            try center.post("W", "\(number)", bytes: 500, style: .whenIdle, from: three)
            center.reclaimMemory()
            #expect(center.statistics.memoryBytes <= Self.memory)
        }
        #expect(center.statistics.queuedBytes < waiting / 2 && center.statistics.queuedBytes >= Self.memory / 8)
        #expect(try #require(center.status(one)?.dropped) > dropped)
        #expect(center.status(two)?.dropped == 0)
        center.goOn(one)
        #expect(center.losses(one).reduce(0, +) == center.status(one)?.dropped)
        try center.center.checkInvariants()
    }

    @Test("E4, R1: values of posters that left give way to other state")
    func leftValues() throws {
        let center = scenario()
        for number in 1...6 {
            _ = fill {
                try Kind.values.take(center, client(number), $0)
                center.reclaimMemory()
            }
            center.disappear(client(number))
        }
        let (left, before) = (center.statistics.retained, center.statistics.displaced)
        #expect(left > 500 && center.statistics.memoryBytes <= Self.memory)
        let taken = fill { number in
            try Kind.observers.take(center, client(8), number)
            center.reclaimMemory()
            #expect(center.statistics.memoryBytes <= Self.memory)
        }
        #expect(taken > 900, "as many as without them")
        let statistics = center.statistics
        #expect(statistics.displaced - before > left / 2)
        #expect(statistics.retained == left - (statistics.displaced - before))
        #expect(statistics.memoryBytes <= Self.most)
        try center.center.checkInvariants()
    }

    @Test("E4: one event removes a bounded number of waiting notifications when memory is exceeded")
    func bounded() throws {
        let center = scenario()
        try center.observe(one, "A")
        center.stop(one)
        try center.post(2000, of: "A")
        center.center.limits[.memoryBytes] = 30_000
        #expect(center.center.isOverMemory)
        let before = try #require(center.status(one)?.queued)
        center.perform { effects in center.center.reclaimMemory(effects: &effects) }
        #expect(center.status(one)?.queued == before - 256 && center.center.isOverMemory)
        center.reclaimMemory()
        #expect(!center.center.isOverMemory && center.statistics.memoryBytes <= 30_000)
    }

    @Test("E4: a client and its observers count in the used memory until the client leaves")
    func clients() throws {
        let center = Scenario()
        let before = center.statistics.memoryBytes
        try center.observe(one, "A")
        #expect(center.statistics.memoryBytes == before + 2048 + center.statistics.observerBytes)
        center.disappear(one)
        #expect(center.statistics.memoryBytes == before && center.statistics.observerBytes == 0)
    }
}

extension Scenario {
    /// As often as it is due.
    fileprivate func reclaimMemory() {
        while center.isOverMemory { perform { effects in center.reclaimMemory(effects: &effects) } }
    }
}
