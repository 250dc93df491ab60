// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonSimulation

/// What a client has written to a channel that ends is taken in its turns, in virtual time, where nothing races.
@Suite("E4, F2: fairness at the end of a channel", .limited)
struct ChannelEndFairnessTests {
    enum End: CaseIterable {
        case another
        case notAllowed
        case left
    }

    /// A service to which serving a call takes a millisecond, and its clients.
    private final class Served: Stage {
        private(set) lazy var poster = join(Plan.Role(hasChannel: true))
        private(set) lazy var other = join()
        private(set) lazy var observer = join()

        /// All are there, and the poster has a channel.
        init() throws {
            super.init(servingTime: 1000, channelBytes: 200_000)
            _ = poster  // joins, before the others
            other.post(PostPlan(name: 1))
            observer.observe(slot: 0, name: 0, object: nil, .deliverImmediately, .default)
            pass(seconds: 5)
            _ = try #require(poster.channels.channel)
        }

        /// Lays so many posts in the channel of a service that is stopped for some 10 ms more.
        func fill(_ count: Int) {
            host.pause(milliseconds: 50)
            for _ in 0..<count { poster.post(PostPlan(name: 0, wantsAnswer: false)) }
            pass(seconds: 0.04)
        }
    }

    @Test(
        "All posts in an ending channel are accepted, and other clients are served meanwhile", arguments: End.allCases)
    func others(end: End) throws {
        let stage = try Served()
        let witness = try #require(stage.observer.witness)
        let count = 400
        stage.fill(count)
        switch end {
        case .another: stage.poster.openChannel()
        case .notAllowed: stage.host.allowChannels(false)
        case .left: stage.poster.leave(abruptly: false)
        }
        stage.pass(seconds: 0.02)
        let before = witness.delivered
        let urgent = stage.ledger.posts.count
        stage.other.post(PostPlan(name: 1))
        stage.pass(seconds: 0.15)
        #expect(stage.ledger.posts[urgent].outcome != .unknown, "no answer")
        #expect(witness.delivered - before < count, "all of it was taken before")
        stage.pass(seconds: 5)
        #expect(witness.delivered == count && witness.announced == 0)
        #expect(stage.world.violation == nil)
    }

    @Test(
        "Two OpenChannel calls during the end of a channel are answered in order, and no notification is lost",
        arguments: [0, 40])
    func twice(callsBefore: Int) throws {
        let stage = try Served()
        let witness = try #require(stage.observer.witness)
        stage.fill(400)
        var answers: [Result<Message, BusError>] = []
        // What comes beyond the process's part of the time waits, with all behind it.
        for _ in 0..<callsBefore { stage.poster.call(ListObservers(of: "").message()) { _ in } }
        for _ in 0..<2 { stage.poster.call(OpenChannel().message()) { answers.append($0) } }
        stage.pass(seconds: 0.1)
        #expect(answers.isEmpty && witness.delivered < 400)
        stage.pass(seconds: 5)
        let descriptors = try answers.map { try OpenChannel.reply(in: $0.get()).rawValue }
        #expect(descriptors.count == 2 && Set(descriptors).count == 2)
        #expect(witness.delivered == 400 && witness.announced == 0)
    }
}
