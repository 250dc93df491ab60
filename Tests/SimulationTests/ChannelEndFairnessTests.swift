// SPDX-License-Identifier: Apache-2.0
import DBus
import NotificationCore
import NotificationWire
import Testing

@testable import Simulation

/// What a client has written to a channel that ends is taken in its turns, in virtual time, where nothing races.
@Suite("E4, F2: ends of channels beside others", .timeLimit(.minutes(20)))
struct ChannelEndFairnessTests {
    enum End: CaseIterable {
        case another
        case notAllowed
        case left
    }

    /// A service to which serving a call takes a millisecond, and its clients.
    private final class Stage {
        let world = World(seed: 1)
        let ledger: Ledger
        let host: ServiceHost
        let poster: PlainClient
        let other: PlainClient
        let observer: PlainClient

        /// All are there, and the poster has a channel.
        init() throws {
            let bus = Bus(world, id: "0f", manner: Bus.Manner())
            let streams = Streams(world, capacity: 200_000)
            ledger = Ledger(world)
            host = ServiceHost(
                world, bus, Disk(world), ledger, limits: Limits(), isSupervised: true, servingTime: 1000,
                streams: streams)
            let clients = [true, false, false].enumerated().map { [world, ledger] index, hasChannel in
                PlainClient(
                    world, bus, ledger, streams, role: Plan.Role(hasChannel: hasChannel), processID: 101 + UInt32(index)
                )
            }
            (poster, other, observer) = (clients[0], clients[1], clients[2])
            observer.observe(slot: 0, name: 0, object: nil, .deliverImmediately, .default)
            other.post(PostPlan(name: 1))
            pass(milliseconds: 5000)
            _ = try #require(poster.channels.channel)
        }

        deinit {
            for client in [poster, other, observer] { client.leave(abruptly: true) }
            host.tearDown()
        }

        func pass(milliseconds: Int64) { world.run(until: world.now + milliseconds * 1000) }

        /// Lays so many posts in the channel of a service that is stopped for some 10 ms more.
        func fill(_ count: Int) {
            host.pause(milliseconds: 50)
            for _ in 0..<count { poster.post(PostPlan(name: 0, wantsAnswer: false)) }
            pass(milliseconds: 40)
        }
    }

    @Test("Others are served while what lies in a channel that ends is taken, all of it", arguments: End.allCases)
    func others(end: End) throws {
        let stage = try Stage()
        let witness = try #require(stage.observer.witness)
        let count = 400
        stage.fill(count)
        switch end {
        case .another: stage.poster.openChannel()
        case .notAllowed: stage.host.allowChannels(false)
        case .left: stage.poster.leave(abruptly: false)
        }
        stage.pass(milliseconds: 20)
        let before = witness.delivered
        let urgent = stage.ledger.posts.count
        stage.other.post(PostPlan(name: 1))
        stage.pass(milliseconds: 150)
        #expect(stage.ledger.posts[urgent].outcome != .unknown, "no answer")
        #expect(witness.delivered - before < count, "all of it was taken before")
        stage.pass(milliseconds: 5000)
        #expect(witness.delivered == count && witness.announced == 0)
        #expect(stage.world.violation == nil)
    }

    @Test("Calls for another channel, and for one more, are answered in their order, and nothing is lost")
    func twice() throws {
        let stage = try Stage()
        let witness = try #require(stage.observer.witness)
        stage.fill(400)
        var answers: [Result<Message, BusError>] = []
        for _ in 0..<2 { stage.poster.call(OpenChannel().message()) { answers.append($0) } }
        stage.pass(milliseconds: 100)
        #expect(answers.isEmpty && witness.delivered < 400)
        stage.pass(milliseconds: 5000)
        let descriptors = try answers.map { try OpenChannel.reply(in: $0.get()).rawValue }
        #expect(descriptors.count == 2 && Set(descriptors).count == 2)
        #expect(witness.delivered == 400 && witness.announced == 0)
    }
}
