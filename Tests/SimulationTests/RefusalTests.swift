// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

@testable import CarillonSimulation

/// What the bus refused, and the service had no time to tell (E5, S4).
@Suite("Messages that the bus refused", .limited)
struct RefusalTests {
    private static let posts = 40

    @Test("G4, G5, E5: a change is announced again to a following client if the bus refused the signal")
    func followers() throws {
        let stage = Stage()
        let (bridge, other) = (stage.join(Plan.Role(followsBy: 10)), stage.join())
        var value = PostPlan(name: 1)
        value.options.retention = Retention()
        other.post(value)
        stage.pass(seconds: 2)
        let follower = try #require(bridge.follower)
        follower.values.ask()
        stage.pass(seconds: 1)
        #expect(follower.wanted == [] && follower.listed?.count == 1)
        bridge.observe(slot: 0, name: 2, object: nil, .hold, .default)
        stage.pass(seconds: 1)
        bridge.setStopped(true)
        // One message fits.
        stage.bus.manner.socketBytes = 1
        stage.bus.manner.maxOutgoingBytes = 0
        other.post(PostPlan(name: 2))
        stage.pass(seconds: 1)
        other.observe(slot: 0, name: 0, object: nil, .hold, .default)
        stage.pass(seconds: 1)
        other.forget(name: nil)
        stage.pass(seconds: 1)
        #expect(stage.bus.discarded > 0)
        stage.bus.manner = Bus.Manner()
        bridge.setStopped(false)
        stage.pass(seconds: 60)
        #expect(follower.wanted == [Names.name(0)] && follower.listed?.isEmpty == true)
        #expect(stage.world.violation == nil)
    }

    @Test(
        "E5, S4: a loss that a service could not report before its end is reported by the next service",
        arguments: [true, false])
    func toldByTheNext(isKilled: Bool) throws {
        let stage = Stage()
        let (client, poster) = (stage.join(), stage.join())
        client.observe(slot: 0, name: nil, object: nil, .hold, .default)
        stage.pass(seconds: 2)
        let witness = try #require(client.witness)
        client.setStopped(true)
        // Enough for the service, which reads.
        stage.bus.manner.socketBytes = 32 << 10
        stage.bus.manner.maxOutgoingBytes = 0
        // What is refused is lost, and told only when the client reads again.
        for _ in 0..<Self.posts {
            poster.post(PostPlan(name: 0, byteCount: 2000))
            stage.pass(seconds: 0.1)
        }
        #expect(stage.ledger.posts.allSatisfy { if case .accepted = $0.outcome { true } else { false } })
        #expect(stage.bus.discarded > 0)
        if isKilled { stage.host.kill(afterOperations: 0) } else { stage.host.terminate() }
        poster.list()
        stage.pass(seconds: 3)
        stage.bus.manner = Bus.Manner()
        client.setStopped(false)
        stage.pass(seconds: 120)
        poster.post(PostPlan(name: 0))
        stage.pass(seconds: 1)
        #expect(stage.ledger.incarnations > 1)
        #expect(witness.receipts[Self.posts] != nil, "the last one arrives")
        #expect(witness.delivered < UInt64(Self.posts))
        #expect(witness.delivered + witness.announced > UInt64(Self.posts))
        #expect(stage.world.violation == nil)
    }

    @Test("D8: no state is kept of a client that left while the bus refused its barriers")
    func refusedAndGone() throws {
        let stage = Stage()
        let (client, poster) = (stage.join(), stage.join())
        client.observe(slot: 0, name: nil, object: nil, .hold, .default)
        stage.pass(seconds: 2)
        stage.bus.refusals = Bus.Refusals(ofBarriers: true)
        for _ in 0..<Self.posts * 4 { poster.post(PostPlan(name: 0)) }
        stage.pass(seconds: 0.5)
        client.leave(abruptly: true)
        stage.pass(seconds: 2)
        stage.bus.refusals = nil
        stage.pass(seconds: 120)
        #expect(stage.host.kept.allSatisfy { $0.count == 0 }, "\(stage.host.kept)")
        #expect(stage.world.violation == nil)
    }
}
