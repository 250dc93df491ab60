// SPDX-License-Identifier: Apache-2.0
import NotificationCore
import Testing

@testable import Simulation

/// What a channel loses with its end, in virtual time, where nothing races.
@Suite("F2, S4: ends of channels", .timeLimit(.minutes(20)))
struct ChannelLossTests {
    private let world: World
    private let host: ServiceHost
    private let poster: PlainClient
    private let observer: PlainClient

    init() {
        world = World(seed: 1)
        let bus = Bus(world, id: "0f", manner: Bus.Manner())
        let ledger = Ledger(world)
        let streams = Streams(world)
        host = ServiceHost(
            world, bus, Disk(world), ledger, limits: Limits(), isSupervised: true, servingTime: 0, streams: streams)
        poster = PlainClient(world, bus, ledger, streams, role: Plan.Role(), processID: 101)
        observer = PlainClient(world, bus, ledger, streams, role: Plan.Role(hasChannel: true), processID: 102)
        observer.observe(slot: 0, name: nil, object: nil, .hold, .default)
        pass(seconds: 2)
    }

    private func pass(seconds: Int64) { world.run(until: world.now + seconds * 1_000_000) }

    private func end() {
        for client in [poster, observer] { client.leave(abruptly: true) }
        host.tearDown()
    }

    @Test("What a client leaves unread as it closes its channel is told, though the service waits for room in it")
    func closedWhileFull() throws {
        defer { end() }
        let witness = try #require(observer.witness)
        observer.setStopped(true)
        // More than any channel holds here.
        for _ in 0..<100 { poster.post(PostPlan(name: 0, byteCount: 5000)) }
        pass(seconds: 2)
        observer.closeChannel(abruptly: true)
        observer.setStopped(false)
        pass(seconds: 10)
        #expect(witness.delivered > 0 && witness.delivered < 100)
        #expect(witness.delivered + witness.announced >= 100)
        #expect(witness.receipts[99] != nil, "the last one was not written")
        #expect(world.violation == nil)
    }

    @Test("S1: that it is suspended is told again where it closes its channel and has not read that")
    func unreadSuspension() throws {
        defer { end() }
        let witness = try #require(observer.witness)
        observer.setStopped(true)
        observer.suspend(true)
        pass(seconds: 2)
        observer.closeChannel(abruptly: true)
        observer.setStopped(false)
        pass(seconds: 10)
        #expect(witness.isToldSuspended)
        #expect(witness.announced == 0)
        #expect(world.violation == nil)
    }
}
