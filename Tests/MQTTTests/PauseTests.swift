// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Glibc
import Testing

@Suite("Pauses of reading", .enabled(if: MosquittoBroker.isAvailable, "there is no mosquitto"), .limited)
struct PauseTests {
    private static let count = 100

    @Test(
        "A client with paused reading receives no publications until it resumes, with and without TLS",
        arguments: [false, true])
    func waits(withTLS: Bool) throws {
        let authority = withTLS ? try CertificateAuthority() : nil
        let broker = try authority?.broker() ?? MosquittoBroker()
        let loop = Loop()
        func party(_ name: String) throws -> Party {
            let party = try Party(broker, on: loop, name) { settings in
                if let authority { settings.use(authority) }
            }
            try party.connect()
            return party
        }
        let (one, other) = (try party("one"), try party("other"))
        try other.subscribe(TopicFilter("bells/#"))
        other.client.isReadingPaused = true
        let texts = (0..<Self.count).map(String.init)
        for text in texts { try one.publish("bells/ding", text) }
        #expect(loop.turn())
        #expect(other.received.isEmpty)
        // It can still publish.
        _ = try other.call { try $0.publish(Publication(topic: "gongs/dong", payload: [])) }
        #expect(loop.turn())
        #expect(other.acknowledged.isEmpty)

        other.client.isReadingPaused = false
        try other.waitForPublications(Self.count)
        #expect(other.texts == texts)
        try loop.run("acknowledged") { other.acknowledged.count == 1 }
    }

    @Test(
        "A pause set by the delegate takes effect after a few publications, and none is lost", arguments: [false, true])
    func fromInside(withTLS: Bool) throws {
        let authority = withTLS ? try CertificateAuthority() : nil
        let broker = try authority?.broker() ?? MosquittoBroker()
        let loop = Loop()
        func party(_ name: String) throws -> Party {
            let party = try Party(broker, on: loop, name) { settings in
                if let authority { settings.use(authority) }
            }
            try party.connect()
            return party
        }
        let (one, other) = (try party("one"), try party("other"))
        try other.subscribe(TopicFilter("bells/#"))
        other.onReceived = { _ in other.client.isReadingPaused = true }
        let texts = (0..<Self.count).map(String.init)
        for text in texts { try one.publish("bells/ding", text) }
        var pauses = 0
        while other.received.count < Self.count {
            try loop.run("a publication") { other.client.isReadingPaused }
            #expect(loop.turn())
            pauses += 1
            other.client.isReadingPaused = false
        }
        #expect(other.texts == texts)
        #expect(pauses > Self.count / 4, "\(pauses)")
        other.onReceived = { _ in }
    }

    @Test("A connection that ends during a pause lets the loop sleep, and its end is reported after the pause")
    func hangUp() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let party = try Party(broker, on: loop) { $0.keepAlive = 5 }
        try party.connect()
        party.client.isReadingPaused = true
        broker.kill()
        #expect(loop.turn())
        #expect(party.errors.isEmpty)
        party.client.isReadingPaused = false
        let error = try party.errors.first ?? party.waitForEnd()
        #expect([.connectionLost, .system(ECONNRESET)].contains(error.cause), "\(error)")
    }

    @Test("A connection that ends during a pause is reported when the client publishes")
    func hangUpWhileWriting() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let party = try Party(broker, on: loop)
        try party.connect()
        party.client.isReadingPaused = true
        broker.kill()
        try loop.run("it is found") {
            _ = try? party.client.publish(Publication(topic: "bells/ding", payload: []))
            return !party.errors.isEmpty
        }
        #expect(!party.client.isConnected)
        #expect(loop.turn())
    }

    @Test("A client that disconnects during a pause receives all publications of its session later")
    func disconnects() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let (one, other) = (
            try Party(broker, on: loop, "one"), try Party(broker, on: loop, "other") { $0.sessionExpiry = 60 }
        )
        try one.connect()
        try other.connect()
        try other.subscribe(TopicFilter("bells/#"))
        other.client.isReadingPaused = true
        let texts = (0..<Self.count).map(String.init)
        for text in texts { try one.publish("bells/ding", text) }
        other.client.disconnect()
        try other.connect()
        #expect(other.received.isEmpty)
        other.client.isReadingPaused = false
        try other.waitForPublications(Self.count)
        #expect(other.texts == texts)
        #expect(other.connections.map(\.sessionPresent) == [false, true])
    }
}
