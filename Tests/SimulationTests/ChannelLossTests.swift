// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

@testable import CarillonSimulation

/// What a channel loses with its end, in virtual time, where nothing races.
@Suite("F2, S4: losses at the end of a channel", .limited)
struct ChannelLossTests {
    private let stage = Stage()
    private let poster: PlainClient
    private let observer: PlainClient

    init() {
        (poster, observer) = (stage.join(), stage.join(Plan.Role(hasChannel: true)))
        observer.observe(slot: 0, name: nil, object: nil, .hold, .default)
        stage.pass(seconds: 2)
    }

    @Test("Notifications that are unread when a client closes a full channel are announced as lost")
    func closedWhileFull() throws {
        let witness = try #require(observer.witness)
        observer.setStopped(true)
        // More than any channel holds here.
        for _ in 0..<100 { poster.post(PostPlan(name: 0, byteCount: 5000)) }
        stage.pass(seconds: 2)
        observer.closeChannel(abruptly: true)
        observer.setStopped(false)
        stage.pass(seconds: 10)
        #expect(witness.delivered > 0 && witness.delivered < 100)
        #expect(witness.delivered + witness.announced >= 100)
        #expect(witness.receipts[99] != nil, "the last one was not written")
        #expect(stage.world.violation == nil)
    }

    @Test("S1: a suspension signal that is unread when a client closes its channel is repeated")
    func unreadSuspension() throws {
        let witness = try #require(observer.witness)
        observer.setStopped(true)
        observer.suspend(true)
        stage.pass(seconds: 2)
        observer.closeChannel(abruptly: true)
        observer.setStopped(false)
        stage.pass(seconds: 10)
        #expect(witness.isToldSuspended)
        #expect(witness.announced == 0)
        #expect(stage.world.violation == nil)
    }
}
