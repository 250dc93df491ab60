// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonTestLimits
import Testing

@testable import CarillonSimulation

/// The verdicts of the simulation about other sessions, on cases of which they are known.
@Suite("Verdicts about other sessions", .limited)
struct SessionJudgingTests {
    private static let user: UInt32 = 4_000_001

    private static var file: SessionsFile {
        SessionsFile(export: ["com.example.*"], imports: [user: [Names.name(0)]], retained: [:])
    }

    /// A session of the user beside the stage's.
    private final class Machine: Stage {
        private(set) var neighborhood: Neighborhood!
        private(set) var poster: PlainClient!

        init() {
            super.init()
            var plan = Plan(seed: 1, dials: Dials())
            plan.steps = []
            plan.neighbors = [
                Plan.Neighbor(user: SessionJudgingTests.user, wants: [Names.name(0)], understandsValues: true)
            ]
            plan.policy.sessions = SessionJudgingTests.file
            neighborhood = Neighborhood(world, ledger, host, plan, id: "0e")
            host.neighborhood = neighborhood
            host.begin(with: plan.policy)
            neighborhood.carryOut(.join(0))
            poster = join()
            poster.list()
            pass(seconds: 1)
        }

        func export(_ count: Int) {
            var post = PostPlan(name: 0)
            post.options.goesToAllSessions = true
            for _ in 0..<count { poster.post(post) }
            pass(seconds: 1)
        }
    }

    @Test("G1: the allowed exchange with another session breaks no rule")
    func both() {
        let machine = Machine()
        machine.poster.observe(
            slot: 0, name: 0, object: nil, .hold, .default, values: false, interval: 0)
        machine.pass(seconds: 1)
        machine.export(10)
        for name in 0..<2 { machine.neighborhood.carryOut(.post(0, PostPlan(name: name))) }
        machine.pass(seconds: 1)
        machine.neighborhood.judge(from: 0)
        #expect(machine.world.violation == nil)
        // Ten of its own, and the one of the other session that is taken.
        #expect(machine.poster.witness?.receipts.count == 11)
        #expect(machine.poster.witness?.missing() == [])
    }

    @Test("R8: a value that differs in another session is a violation", arguments: [false, true])
    func values(isLost: Bool) {
        let machine = Machine()
        func keep() {
            var post = PostPlan(name: 0)
            post.options.goesToAllSessions = true
            post.options.retention = Retention()
            machine.poster.post(post)
            machine.pass(seconds: 1)
        }
        keep()
        machine.neighborhood.bus.losesSignals = isLost
        // Each fifth.
        for _ in 0..<5 { keep() }
        machine.neighborhood.judgeValues()
        #expect(machine.world.violation?.rule == (isLost ? "R8" : nil))
    }

    @Test("G1: a notification that the bus loses in transit to another session is a violation")
    func lost() {
        let machine = Machine()
        machine.export(1)
        machine.neighborhood.bus.losesSignals = true
        machine.export(10)
        #expect(machine.world.violation?.rule == "G1")
    }

    @Test("G1: a session that is still absent when faults have ended is a violation")
    func absent() {
        let machine = Machine()
        machine.neighborhood.carryOut(.unreachable(true))
        machine.neighborhood.carryOut(.cut)
        machine.pass(seconds: 1)
        machine.neighborhood.judge(from: 0)
        #expect(machine.world.violation?.rule == "convergence")
    }

    @Test("G1: a notification from a user outside the configured names is a violation", arguments: [0, 1])
    func names(name: Int) {
        let ledger = Ledger(World(seed: 1))
        var policy = PolicyFile()
        policy.sessions = Self.file
        ledger.policy.begin(with: policy)
        var post = PostPlan(name: name)
        post.user = Self.user
        let number = ledger.post(post, from: ":9.1")
        ledger.policy.judgeArrival(of: number, at: ":1.1")
        #expect(ledger.world.violation?.rule == (name == 0 ? nil : "G1"))
    }

    @Test("G1: more arrivals from a user than the rate limit accepts are a violation", arguments: [2512, 2514])
    func flood(count: Int) {
        let ledger = Ledger(World(seed: 1))
        ledger.imports.noteStay()
        var post = PostPlan(name: 0)
        post.user = Self.user
        ledger.imports.noteFlood(of: Self.user)
        for _ in 0..<count { ledger.imports.noteArrival(of: ledger.post(post, from: ":9.1")) }
        #expect(ledger.world.violation?.rule == (count == 2512 ? nil : "G1"))
    }
}
