// SPDX-License-Identifier: Apache-2.0
import NotificationCore
import Testing

@testable import Simulation

/// What the bus refused, and the service had no time to tell (E5, S4).
@Suite("Refusals", .timeLimit(.minutes(20)))
struct RefusalTests {
    private static let posts = 40

    @Test("G4, G5, E5: who follows something is told of a change again when the bus had no room for the word")
    func followers() throws {
        let world = World(seed: 1)
        let bus = Bus(world, id: "0f", manner: Bus.Manner())
        let ledger = Ledger(world)
        let streams = Streams(world)
        let host = ServiceHost(
            world, bus, Disk(world), ledger, limits: Limits(), isSupervised: true, servingTime: 0, streams: streams)
        let bridge = PlainClient(world, bus, ledger, streams, role: Plan.Role(followsBy: 10), processID: 101)
        let other = PlainClient(world, bus, ledger, streams, role: Plan.Role(), processID: 102)
        defer {
            for client in [bridge, other] { client.leave(abruptly: true) }
            host.tearDown()
        }
        ledger.witnesses = { [bridge, other].compactMap(\.witness) }
        func pass(seconds: Double) { world.run(until: world.now + Int64(seconds * 1_000_000)) }
        var value = PostPlan(name: 1)
        value.options.retention = Retention()
        other.post(value)
        pass(seconds: 2)
        let follower = try #require(bridge.follower)
        follower.values.ask()
        pass(seconds: 1)
        #expect(follower.wanted == [] && follower.listed?.count == 1)
        bridge.observe(slot: 0, name: 2, object: nil, .hold, .default)
        pass(seconds: 1)
        bridge.setStopped(true)
        // One message fits.
        bus.manner.socketBytes = 1
        bus.manner.mostOutgoingBytes = 0
        other.post(PostPlan(name: 2))
        pass(seconds: 1)
        other.observe(slot: 0, name: 0, object: nil, .hold, .default)
        pass(seconds: 1)
        other.forget(name: nil)
        pass(seconds: 1)
        #expect(bus.discarded > 0)
        bus.manner = Bus.Manner()
        bridge.setStopped(false)
        pass(seconds: 60)
        #expect(follower.wanted == [Names.name(0)] && follower.listed?.isEmpty == true)
        #expect(world.violation == nil)
    }

    @Test(
        "E5, S4: a service that ends before it could tell what the bus refused leaves that to the next",
        arguments: [true, false])
    func toldByTheNext(isKilled: Bool) throws {
        let world = World(seed: 1)
        let bus = Bus(world, id: "0f", manner: Bus.Manner())
        let ledger = Ledger(world)
        let streams = Streams(world)
        let host = ServiceHost(
            world, bus, Disk(world), ledger, limits: Limits(), isSupervised: true, servingTime: 0, streams: streams)
        let client = PlainClient(world, bus, ledger, streams, role: Plan.Role(), processID: 101)
        let poster = PlainClient(world, bus, ledger, streams, role: Plan.Role(), processID: 102)
        defer {
            for client in [client, poster] { client.leave(abruptly: true) }
            host.tearDown()
        }
        func pass(seconds: Double) { world.run(until: world.now + Int64(seconds * 1_000_000)) }
        client.observe(slot: 0, name: nil, object: nil, .hold, .default)
        pass(seconds: 2)
        let witness = try #require(client.witness)
        client.setStopped(true)
        // Enough for the service, which reads.
        bus.manner.socketBytes = 32 << 10
        bus.manner.mostOutgoingBytes = 0
        // What is refused is lost, and told only when the client reads again.
        for _ in 0..<Self.posts {
            poster.post(PostPlan(name: 0, byteCount: 2000))
            pass(seconds: 0.1)
        }
        #expect(ledger.posts.allSatisfy { if case .accepted = $0.outcome { true } else { false } })
        #expect(bus.discarded > 0)
        if isKilled { host.kill(afterOperations: 0) } else { host.terminate() }
        poster.list()
        pass(seconds: 3)
        bus.manner = Bus.Manner()
        client.setStopped(false)
        pass(seconds: 120)
        poster.post(PostPlan(name: 0))
        pass(seconds: 1)
        #expect(ledger.incarnations > 1)
        #expect(witness.receipts[Self.posts] != nil, "the last one arrives")
        #expect(witness.delivered < UInt64(Self.posts))
        #expect(witness.delivered + witness.announced > UInt64(Self.posts))
        #expect(world.violation == nil)
    }
}
