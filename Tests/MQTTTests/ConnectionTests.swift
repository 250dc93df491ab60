// SPDX-License-Identifier: Apache-2.0
import MQTT
import MainLoop
import TestSupport
import Testing

@Suite("Connections to a broker", .enabled(if: MosquittoBroker.isAvailable), .timeLimit(.minutes(20)))
struct ConnectionTests {
    @Test("A connection is taken, and what is published arrives")
    func connects() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let (one, other) = (try Party(broker, on: loop, "one"), try Party(broker, on: loop, "other"))
        #expect(!one.client.isConnected)
        try one.connect()
        try other.connect()
        #expect(one.client.isConnected)
        #expect(one.connections.map(\.sessionPresent) == [false])
        #expect(try other.subscribe(TopicFilter("bells/#")) == [.grantedAtLeastOnce])
        #expect(try one.publish("bells/ding", "dong") == .success)
        try other.waitForPublications(1)
        #expect(other.received == [Publication(topic: "bells/ding", payload: Array("dong".utf8))])
        #expect(!one.wasToldInCall && !other.wasToldInCall)
    }
}
