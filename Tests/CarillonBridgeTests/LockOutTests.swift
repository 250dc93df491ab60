// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonBridge

/// A broker that takes everything and acknowledges nothing by itself.
private final class FakeBroker: BrokerClient {
    var delegate: (any MQTTClientDelegate)?
    var isReadingPaused = false
    private(set) var isConnected = false
    private(set) var sent: [(id: PacketID, publication: Publication)] = []
    private var lastID: UInt16 = 0

    func connect(startsClean: Bool) throws(MQTTError) {
        isConnected = true
        sent = []
        delegate?.connected(sessionPresent: true, limits: BrokerLimits())
    }

    func disconnect(_ reason: ReasonCode) { isConnected = false }

    func publish(_ publication: Publication) throws(MQTTError) -> PacketID {
        guard isConnected else { throw MQTTError(.notConnected) }
        lastID += 1
        sent.append((PacketID(rawValue: lastID), publication))
        return sent.last!.id
    }

    func subscribe(_ filters: [TopicFilter]) throws(MQTTError) -> PacketID { PacketID(rawValue: 0) }
    func unsubscribe(_ topics: [String]) throws(MQTTError) -> PacketID { PacketID(rawValue: 0) }

    func acknowledgeAll() {
        let all = sent
        sent = []
        for one in all { delegate?.acknowledged(one.id, .success) }
    }

    func end(_ cause: MQTTError.Cause) {
        isConnected = false
        delegate?.disconnected(MQTTError(cause))
    }
}

/// Time that goes on when the test says so. Sendable: its context is run by the test's thread only.
private final class Clock: LoopClock, @unchecked Sendable {
    private(set) var microseconds: Int64 = 1_000_000_000

    func expect(at microseconds: Int64) {}
    func goOn(seconds: Int64) { microseconds += seconds * 1_000_000 }
}

@Suite("G2: messages that would lock a bridge out", .limited)
struct LockOutTests {
    /// An exporter with a broker that ends the connection when it gets messages of one name.
    private final class Lab: BrokerLinkDelegate {
        let fake = FakeBroker()
        let clock = Clock()
        private let context: MainContext
        let link: BrokerLink
        var exporter: Exporter!
        private(set) var lost: [String?: UInt64] = [:]
        private(set) var delivered: [String] = []
        private(set) var connections = 0

        init(inFlight: UInt16, queue: Int = 10_000, queueBytes: Int = 16 << 20) throws {
            var configuration = BridgeConfiguration(standard: ())
            configuration.exports = try NamePattern.list("*")
            configuration.inFlight = inFlight
            configuration.queue = .init(count: queue, byteCount: queueBytes)
            context = MainContext(clock: clock)
            var environment = BridgeEnvironment.own(address: "", context: context)
            environment.makeBrokerClient = { [fake] _, _ throws(MQTTError) in fake }
            environment.time = { [clock] in clock.microseconds }
            link = try BrokerLink(.init(host: "h", port: 1, clientID: "c"), environment, context: context)
            link.delegate = self
            exporter = Exporter(configuration, environment, run: "run", broker: link, context: context) {
                [unowned self] count, name, _ in lost[name, default: 0] += count
            }
        }

        func post(_ names: String..., isValue: Bool = false, expiresAfter seconds: Int64? = nil) throws {
            try take(names, isValue: isValue, expiry: seconds.map { clock.microseconds + $0 * 1_000_000 })
        }

        /// The service sends values again.
        func replay(_ names: String...) throws { try take(names, isValue: true, isReplayed: true) }

        private func take(
            _ names: [String], isValue: Bool, isReplayed: Bool = false, expiry: Int64? = nil
        ) throws {
            for name in names {
                var arrived = NotificationSignal(
                    name: name, object: "", userInfo: [:], observers: [], poster: ":1.7", serial: 1, sequence: 1)
                arrived.details = ["retained": .boolean(isReplayed), "kept": .boolean(isValue)]
                arrived.details["expiry"] = expiry.map { .int64($0) }
                let message = NotificationsSignal([arrived]).message(to: ":1.8").carried(from: ":1.1", serial: 1)
                for one in try #require(try ArrivedNotification.all(in: message)) { exporter.take(one) }
            }
        }

        /// Connects until everything has gone, at most so often.
        func run(atMost count: Int, cause: MQTTError.Cause?) {
            for _ in 0..<count where exporter.queuedCount + exporter.inFlightCount > 0 {
                connections += 1
                if !fake.isConnected { link.connect() }
                // A suspect waits for a second.
                if fake.sent.isEmpty { wait() }
                while !fake.sent.isEmpty {
                    if let cause, fake.sent.contains(where: { $0.publication.topic.hasSuffix("/n/bad") }) {
                        fake.end(cause)
                        break
                    }
                    delivered += fake.sent.map { String($0.publication.topic.split(separator: "/").last!) }
                    fake.acknowledgeAll()
                    if fake.sent.isEmpty { wait() }
                }
            }
        }

        private func wait() {
            clock.goOn(seconds: 2)
            while context.iterate(mayBlock: false) {}
        }

        func brokerChanged() {}
        func brokerConnected(sessionPresent: Bool) { exporter.pump() }
        func brokerDisconnected(because error: MQTTError?) { exporter.connectionEnded(because: error) }
        func brokerSent(_ publication: Publication) {}
        func brokerAcknowledged(_ id: PacketID, _ reason: ReasonCode) { exporter.acknowledged(id, reason) }
        func brokerSubscribed(_ id: PacketID, _ reasons: [ReasonCode]) {}
        func brokerUnsubscribed(_ id: PacketID) {}
        var waitsForBroker: Bool { false }
        func brokerHasShown() {}
    }

    @Test(
        "A message that ends the connection repeatedly is discarded, and all others arrive in order",
        arguments: [1, 20],
        [MQTTError.Cause.ended(.protocolError), .ended(.unspecified), .connectionLost, .system(104)])
    func givenUp(inFlight: UInt16, cause: MQTTError.Cause) throws {
        let lab = try Lab(inFlight: inFlight)
        try lab.post("a", "b", "bad", "c", "d")
        lab.run(atMost: 4, cause: cause)
        #expect(lab.delivered == ["a", "b", "c", "d"] && lab.lost == ["bad": 1])
        #expect(lab.connections <= (cause == .ended(.protocolError) ? 3 : 4))
    }

    @Test(
        "Ends of the connection with unrelated causes do not discard a message",
        arguments: [
            MQTTError.Cause.ended(.serverShuttingDown), .ended(.keepAliveTimeout), .ended(.sessionTakenOver), .noAnswer,
        ])
    func kept(cause: MQTTError.Cause) throws {
        let lab = try Lab(inFlight: 20)
        try lab.post("a", "bad", "b")
        lab.run(atMost: 20, cause: cause)
        #expect(lab.lost.isEmpty && lab.exporter.queuedCount + lab.exporter.inFlightCount == 3)
        lab.run(atMost: 1, cause: nil)
        #expect(lab.delivered == ["a", "bad", "b"])
    }

    @Test("A value that ended the connection is published again neither by a comparison nor by a replay")
    func values() throws {
        let lab = try Lab(inFlight: 20)
        try lab.post("bad", "good", isValue: true)
        lab.run(atMost: 4, cause: .ended(.protocolError))
        #expect(lab.lost == ["bad": 1] && lab.delivered == ["good"])
        let kept: Set<ValueKey> = [ValueKey("bad", ""), ValueKey("good", "")]
        lab.exporter.values.beginLooking()
        // The broker shows neither of them.
        let isReplayNeeded = lab.exporter.compare(with: kept, hasLooked: true).isReplayNeeded
        #expect(isReplayNeeded, "of the good one")
        try lab.replay("bad", "good")
        lab.run(atMost: 4, cause: .ended(.protocolError))
        #expect(lab.lost == ["bad": 1] && lab.delivered == ["good", "good"])
        lab.exporter.values.beginLooking()
        lab.exporter.values.show(
            "good", "",
            Publication(topic: "t", payload: Array("{}".utf8), isRetained: true, contentType: "application/json"),
            now: 0)
        #expect(!lab.exporter.compare(with: kept, hasLooked: true).isReplayNeeded)
    }

    @Test(
        "A value that does not fit into the queue is published by a later replay, and does not count as lost again"
    )
    func queueFull() throws {
        let lab = try Lab(inFlight: 20, queue: 2)
        try lab.post("a", "b", "c", isValue: true)
        try lab.replay("d", "e")
        #expect(lab.lost == ["a": 1, "b": 1, "c": 1])
        lab.run(atMost: 1, cause: nil)
        #expect(lab.delivered == ["d", "e"] && lab.exporter.values.takeReplay())
        lab.fake.end(.noAnswer)
        try lab.replay("a", "b", "c", "d", "e")
        lab.run(atMost: 1, cause: nil)
        // Of three that are due only two have room, and one of them is lost again: no loss, as it was there before.
        #expect(lab.delivered == ["d", "e", "b", "c"] && lab.exporter.values.takeReplay())
        try lab.replay("a", "b", "c", "d", "e")
        lab.run(atMost: 1, cause: nil)
        #expect(lab.delivered == ["d", "e", "b", "c", "a"] && !lab.exporter.values.takeReplay())
        #expect(lab.lost == ["a": 1, "b": 1, "c": 1])
    }

    @Test("A value that never fits into the queue is refused, and no replay is requested for it")
    func neverFits() throws {
        let lab = try Lab(inFlight: 20, queueBytes: 10)
        try lab.post("a", isValue: true)
        #expect(lab.lost == ["a": 1] && !lab.exporter.values.takeReplay())
        try lab.replay("a")
        #expect(lab.lost == ["a": 1] && lab.exporter.queuedCount == 0)
    }

    @Test("A message that was sent is sent again even after its expiry, and unsent messages expire")
    func expired() throws {
        let lab = try Lab(inFlight: 1)
        try lab.post("a", "b", expiresAfter: 1)
        lab.link.connect()
        #expect(lab.fake.sent.count == 1)
        lab.fake.end(.connectionLost)
        lab.clock.goOn(seconds: 60)
        lab.run(atMost: 2, cause: nil)
        #expect(lab.delivered == ["a"], "the other one had no number yet")
        #expect(lab.lost.isEmpty)
    }

    @Test("Waiting removals are part of the unacknowledged messages")
    func removals() throws {
        let lab = try Lab(inFlight: 1)
        try lab.post("a", "b", isValue: true)
        lab.run(atMost: 1, cause: nil)
        lab.fake.end(.connectionLost)
        lab.exporter.values.willAsk()
        _ = lab.exporter.compare(with: [], hasLooked: false)
        #expect(lab.exporter.unacknowledged.map(\.message.name) == ["a", "b"])
        #expect(lab.exporter.unacknowledged.allSatisfy { $0.isRemoval })
        // For the next bridge they are no part of the queue, which may have no room for them.
        let next = try Lab(inFlight: 1, queue: 1)
        next.exporter.goOn(with: TopicCounts(run: "r"), lab.exporter.unacknowledged)
        #expect(next.exporter.queuedCount == 0 && next.exporter.unacknowledged.count == 2 && next.lost.isEmpty)
    }

    @Test("A name that can't be a topic is refused, and other messages are delivered")
    func noTopic() throws {
        let lab = try Lab(inFlight: 20)
        let deep = (0..<300).map { _ in "x" }.joined(separator: ".")
        try lab.post("a", deep, String(repeating: "y", count: 65_536), "b")
        lab.run(atMost: 1, cause: nil)
        #expect(lab.delivered == ["a", "b"] && lab.lost[deep] == 1 && lab.lost.count == 2)
    }
}
