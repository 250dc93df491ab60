// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonTestLimits
import Testing

@testable import CarillonBridge

/// What the gate makes of a publication that anybody at the broker may have sent.
@Suite("G2: acceptance of messages from the broker", .limited)
struct InwardGateTests {
    private let own = Origin(host: "here", user: "ben")!
    private let other = Origin(host: "lap", user: "ben")!
    private let start = SuspendingClock.now

    /// A gate that may import `org.example.` and what is below it, while `names` are wanted.
    private func gate(wanting names: String...) throws -> InwardGate {
        let imports = try NamePattern.list("org.example.*")
        var gate = InwardGate(realm: "home", own: own, imports: imports)
        gate.wanted = WantedNames(observed: names, isAnyObserved: false, imports: imports, maxSubscriptions: 100)
        return gate
    }

    private func topic(_ subject: BridgeTopic.Subject, of origin: Origin, in realm: String = "home") -> String {
        BridgeTopic(subject, of: origin).text(in: realm)
    }

    private func publication(
        _ name: String, of origin: Origin, in realm: String = "home", payload: String = "{}", count: UInt64? = nil,
        isRetained: Bool = false, hops: UInt64 = 1
    ) -> Publication {
        var properties = MessageProperties()
        properties.hops = hops
        properties.sequenceNumber = count.map { .init(run: "r", count: $0) }
        return Publication(
            topic: topic(.notification(name: name), of: origin, in: realm), payload: Array(payload.utf8),
            isRetained: isRetained, userProperties: properties.all)
    }

    /// The judgement in a word.
    private func judge(_ gate: inout InwardGate, _ publication: Publication, at seconds: Int = 0) -> String {
        switch gate.judge(publication, now: start + .seconds(seconds)) {
        case .ignored: "ignored"
        case .own(let topic): "own of \(topic.origin.text)"
        case .presence(let origin, let host, let before):
            "\(origin.text) is \(host.isOnline ? "on" : "off")"
                + (host.isStripped && before?.isStripped != true ? ", stripped" : "")
        case .unwanted(let name): "unwanted \(name)"
        case .refused(_, _, let reason, _): "refused as \(reason?.rawValue ?? "no loss")"
        case .repeated: "repeated"
        case .message(let message): "\(message.name)" + (message.mayBeOld ? " anew" : "")
        }
    }

    @Test("The bridge ignores its own messages on any topic, and messages of another realm")
    func ownMessages() throws {
        var gate = try gate(wanting: "org.example.A")
        #expect(judge(&gate, publication("org.example.A", of: own)) == "own of \(own.text)")
        #expect(judge(&gate, Publication(topic: topic(.status, of: own), payload: [])) == "own of \(own.text)")
        #expect(judge(&gate, publication("org.example.A", of: other)) == "org.example.A")
        #expect(judge(&gate, publication("org.example.A", of: Origin(host: "here", user: "eve")!)) == "org.example.A")
        #expect(judge(&gate, publication("org.example.A", of: other, in: "work")) == "ignored")
        for subject in [.status, .test] as [BridgeTopic.Subject] {
            #expect(judge(&gate, Publication(topic: topic(subject, of: other), payload: [])) == "ignored")
        }
    }

    @Test("A message is accepted only if its name is wanted and in the import list")
    func lists() throws {
        var gate = try gate(wanting: "org.example.A", "com.example.B")
        #expect(judge(&gate, publication("org.example.A", of: other)) == "org.example.A")
        #expect(judge(&gate, publication("org.example.C", of: other)) == "unwanted org.example.C")
        #expect(judge(&gate, publication("com.example.B", of: other)) == "unwanted com.example.B")
        let value = Publication(
            topic: topic(.value(name: "org.example.C", object: "x"), of: other), payload: Array("{}".utf8))
        #expect(judge(&gate, value) == "unwanted org.example.C")
        // The list may have become shorter than what is wanted.
        let before = gate.wanted
        gate = InwardGate(realm: "home", own: own, imports: try NamePattern.list("org.example.Z"))
        gate.wanted = before
        #expect(judge(&gate, publication("org.example.A", of: other)) == "unwanted org.example.A")
    }

    @Test("A repeated message is ignored, and the first retained message of a topic counts as an old value")
    func repeated() throws {
        var gate = try gate(wanting: "org.example.A", "org.example.B")
        #expect(judge(&gate, publication("org.example.A", of: other, count: 1)) == "org.example.A")
        #expect(judge(&gate, publication("org.example.A", of: other, count: 1)) == "repeated")
        for (count, word) in [(7, "org.example.B anew"), (8, "org.example.B")] as [(UInt64, String)] {
            #expect(judge(&gate, publication("org.example.B", of: other, count: count, isRetained: true)) == word)
        }
    }

    @Test("A hole in the sequence numbers is a loss, unless the name was unwanted meanwhile")
    func losses() throws {
        var gate = try gate(wanting: "org.example.A")
        #expect(judge(&gate, publication("org.example.A", of: other, count: 1)) == "org.example.A")
        #expect(!gate.isWaitingForLosses)
        #expect(judge(&gate, publication("org.example.A", of: other, count: 4)) == "org.example.A")
        #expect(gate.isWaitingForLosses && gate.losses(at: start).isEmpty)
        #expect(gate.losses(at: start + .seconds(60)).map(\.count) == [2] && !gate.isWaitingForLosses)
        let wanted = gate.wanted
        gate.wanted = WantedNames()
        gate.wanted = wanted
        #expect(judge(&gate, publication("org.example.A", of: other, count: 9)) == "org.example.A")
        #expect(gate.losses(at: start + .seconds(120)).isEmpty)
    }

    @Test("An undecodable message is refused as a loss, and a message after too many bridges as no loss")
    func refused() throws {
        var gate = try gate(wanting: "org.example.A")
        #expect(judge(&gate, publication("org.example.A", of: other, payload: "{")) == "refused as undecodable")
        #expect(judge(&gate, publication("org.example.A", of: other, hops: 4)) == "org.example.A")
        #expect(judge(&gate, publication("org.example.A", of: other, hops: 5)) == "refused as no loss")
    }

    @Test("A host whose messages lose their properties is reported once, and its unnumbered messages are refused")
    func stripped() throws {
        var gate = try gate(wanting: "org.example.A")
        let online = topic(.online, of: other)
        var presence = OwnPresence(run: "r")
        var message = presence.announcement(answer: nil, asking: nil, topic: online)
        #expect(judge(&gate, message) == "\(other.text) is on")
        #expect(judge(&gate, message) == "ignored", "nothing is new")
        message.userProperties = []
        #expect(judge(&gate, message) == "\(other.text) is on, stripped")
        #expect(judge(&gate, publication("org.example.A", of: other)) == "refused as stripped")
        #expect(
            judge(&gate, publication("org.example.A", of: other, count: 1)) == "org.example.A",
            "it has its number, whatever somebody says of its host")
        var offline = presence.offlineMessage(topic: online)
        offline.userProperties = []
        #expect(judge(&gate, offline) == "\(other.text) is off", "it was stripped before")
        #expect(judge(&gate, presence.announcement(answer: nil, asking: nil, topic: online)) == "\(other.text) is on")
        #expect(judge(&gate, publication("org.example.A", of: other)) == "org.example.A")
    }
}
