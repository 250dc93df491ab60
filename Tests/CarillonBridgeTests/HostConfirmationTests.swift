// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("G2: hosts whose presence the broker has forgotten", .limited)
struct HostConfirmationTests {
    private final class Lab: BrokerStage {
        private(set) var hosts = HostTable()
        private var confirmation: HostConfirmation!
        private(set) var forgotten: [[String]] = []

        init(knowing known: String...) throws {
            try super.init()
            confirmation = HostConfirmation(
                realm: "home", broker: link, context: context, began: { [unowned self] in hosts.beginConfirming() },
                unconfirmed: { [unowned self] in hosts.unconfirmed },
                known: { [unowned self] in Set(hosts.hosts.keys) },
                confirm: { [unowned self] in hosts.confirm($0) },
                forget: { [unowned self] origins in
                    forgotten.append(origins.map(\.text))
                    _ = hosts.endConfirming(origins)
                })
            for host in known { _ = hosts.take(presence(host), of: Origin(host: host, user: "u")!) }
            link.connect()
        }

        private func presence(_ host: String) -> Publication {
            let origin = Origin(host: host, user: "u")!
            return Publication(
                topic: BridgeTopic(.online, of: origin).text(in: "home"), payload: Array("on".utf8), isRetained: true)
        }

        func topic(_ host: String) -> String { presence(host).topic }

        func knows(_ origin: Origin) { _ = hosts.take(presence(origin.host), of: origin) }

        func isAtBroker(_ hosts: String...) {
            for host in hosts {
                let presence = presence(host)
                broker.retained[presence.topic] = presence
            }
        }

        func again() { confirmation.again() }

        override func brokerConnected(sessionPresent: Bool) { confirmation.begin() }
        override func brokerDisconnected(because error: MQTTError?) { confirmation.stop() }
        override func brokerSent(_ publication: Publication) {
            if let topic = BridgeTopic(publication.topic, in: "home") { _ = hosts.take(publication, of: topic.origin) }
        }
    }

    @Test("A presence message from the session's queue does not confirm a host")
    func queued() throws {
        let lab = try Lab(knowing: "a", "b")
        lab.isAtBroker("a", "b")
        lab.pass(seconds: 200)
        lab.broker.end()
        lab.broker.retained[lab.topic("a")] = nil
        lab.pass(seconds: 5)
        #expect(lab.broker.connections == 2)
        lab.knows(Origin(host: "a", user: "u")!)
        lab.pass(seconds: 100)
        #expect(lab.forgotten.flatMap { $0 } == ["a/u"])
    }

    @Test("A presence message from the queue does not confirm a host, even after a long pause in reading")
    func pausedQueue() throws {
        let lab = try Lab(knowing: "a")
        lab.isAtBroker("a")
        lab.pass(seconds: 200)
        lab.broker.end()
        lab.broker.retained[lab.topic("a")] = nil
        lab.pass(seconds: 5)
        lab.link.isReadingPaused = true
        lab.pass(seconds: 300)
        lab.link.isReadingPaused = false
        lab.pass(seconds: 10)
        // It was in the queue, behind the answer.
        lab.knows(Origin(host: "a", user: "u")!)
        lab.pass(seconds: 300)
        #expect(lab.forgotten.flatMap { $0 } == ["a/u"])
        lab.pass(seconds: 300)
        #expect(!lab.clock.isAwaited && lab.hosts.unconfirmed.isEmpty)
    }

    @Test("A host that the broker does not show is forgotten when hosts have had time to connect")
    func forgotten() throws {
        let lab = try Lab(knowing: "a", "b")
        lab.isAtBroker("b")
        lab.pass(seconds: 80)
        #expect(lab.forgotten.isEmpty)
        lab.pass(seconds: 20)
        #expect(lab.forgotten == [["a/u"], []])
        lab.pass(seconds: 300)
        #expect(lab.forgotten.count == 2 && !lab.clock.isAwaited)
    }

    @Test("An empty result is also reported, even if the broker shows a host only when queried")
    func noneForgotten() throws {
        let none = try Lab()
        none.pass(seconds: 100)
        #expect(none.forgotten == [[]])
        let lab = try Lab(knowing: "a")
        lab.broker.hides = { [clock = lab.clock] _ in clock.microseconds < 1_080_000_000 }
        lab.isAtBroker("a")
        lab.pass(seconds: 100)
        #expect(lab.forgotten == [[]])
    }

    @Test("Repeated drops of messages do not postpone a confirmation further")
    func drops() throws {
        let lab = try Lab(knowing: "a")
        for _ in 0..<8 {
            lab.pass(seconds: 12)
            lab.again()
        }
        #expect(lab.forgotten == [["a/u"], []])
        lab.pass(seconds: 100)
        lab.pass(seconds: 300)
        #expect(lab.forgotten.count == 4, "once more for those of the first, and of the second time")
    }

    @Test("A broker that drops retained messages causes no host to be forgotten")
    func dropping() throws {
        let lab = try Lab(knowing: "a")
        lab.link.canary = ("own/online", "own/+")
        lab.pass(seconds: 2_000)
        #expect(lab.forgotten.count == 6 && lab.forgotten.allSatisfy(\.isEmpty), "it is asked again, and not for ever")
        lab.again()
        lab.broker.retained["own/online"] = Publication(topic: "own/online", payload: [1], isRetained: true)
        lab.pass(seconds: 200)
        let some = lab.forgotten.filter { !$0.isEmpty }
        #expect(some == [["a/u"]])
    }

    @Test("Many hosts are queried and forgotten in batches of at most 32")
    func many() throws {
        let lab = try Lab(knowing: "h0")
        for number in 1..<100 {
            let origin = Origin(host: "h\(number)", user: "u")!
            lab.knows(origin)
        }
        lab.broker.end()
        lab.link.connect()
        lab.isAtBroker("h7")
        lab.pass(seconds: 120)
        #expect(lab.forgotten.map(\.count).sorted() == [0, 4, 31, 32, 32])
        #expect(lab.broker.asked.allSatisfy { $0.count <= 32 })
    }
}
