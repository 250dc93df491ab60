// SPDX-License-Identifier: Apache-2.0
import MQTT
import MainLoop
import TestLimits
import Testing

@testable import CarillonBridge

@Suite("G2: messages of a bridge to itself", .limited)
struct RoundTripsTests {
    private final class Lab: BrokerStage {
        private(set) var trips: RoundTrips!
        private(set) var results: [String] = []
        /// Whether what it publishes comes back.
        var isHeard = true

        override init() throws {
            try super.init()
            link.canary = ("own", "+")
            broker.retained["own"] = Publication(topic: "own", payload: [1], isRetained: true)
            trips = RoundTrips(topic: "test", broker: link, makeToken: { "token" }, context: context)
            link.connect()
            trips.connected()
        }

        override func brokerHasShown() { trips.probe() }
        override func brokerSubscribed(_ id: PacketID, _ reasons: [ReasonCode]) {
            trips.subscribed(id, reasons)
            guard isHeard, !reasons.contains(where: \.isFailure) else { return }
            trips.received(Publication(topic: "test", payload: Array("token".utf8)))
        }

        func ask() {
            link.showRetained(["a/b"], usesCanary: true) { _ in }
            pass(seconds: 20)
        }

        func test() {
            trips.test { [unowned self] result in
                switch result {
                case .success: results.append("back")
                case .failure(let failure): results.append(failure.reason)
                }
            }
        }
    }

    @Test("Behind a query one has to come back, or the broker has dropped others as well")
    func silence() throws {
        let lab = try Lab()
        lab.pass(seconds: 2)
        lab.ask()
        #expect(lab.broker.connections == 1 && !lab.trips.isWaiting && lab.broker.filters.isEmpty)
        lab.isHeard = false
        lab.ask()
        #expect(lab.broker.connections == 2)
        // That there is none is no reason: nothing was shown on this connection.
        lab.pass(seconds: 200)
        #expect(lab.broker.connections == 2)
    }

    @Test("Where none has ever come back that is a reason once")
    func neverHeard() throws {
        let lab = try Lab()
        lab.isHeard = false
        for _ in 0..<5 { lab.ask() }
        lab.pass(seconds: 200)
        #expect(lab.broker.connections == 2 && !lab.clock.isAwaited)
    }

    @Test("Where the broker refuses to send them nothing is missing, and whoever asks for one is told at once")
    func refused() throws {
        let lab = try Lab()
        lab.broker.refuses = { $0 == "test" }
        for _ in 0..<3 { lab.ask() }
        lab.pass(seconds: 200)
        #expect(lab.broker.connections == 1 && lab.link.missingGrant == nil && !lab.clock.isAwaited)
        lab.test()
        lab.pass(seconds: 1)
        #expect(lab.results.count == 1 && lab.results.first?.contains("refused the subscription to test") == true)
        lab.broker.refuses = { _ in false }
        lab.test()
        lab.pass(seconds: 1)
        #expect(lab.results.last == "back")
    }

    @Test("Behind what is not read none can come back")
    func paused() throws {
        let lab = try Lab()
        lab.pass(seconds: 2)
        lab.isHeard = false
        lab.link.showRetained(["a/b"], usesCanary: true) { _ in }
        lab.pass(seconds: 8)
        lab.broker.isReadingPaused = true
        lab.pass(seconds: 60)
        #expect(lab.broker.connections == 1)
        lab.isHeard = true
        lab.broker.isReadingPaused = false
        lab.pass(seconds: 60)
        #expect(lab.broker.connections == 1 && !lab.trips.isWaiting)
    }

    @Test("One that somebody asks for goes at once, and one of its own ends for it")
    func asked() throws {
        let lab = try Lab()
        lab.isHeard = false
        lab.pass(seconds: 1)
        #expect(lab.trips.isWaiting)
        lab.isHeard = true
        lab.test()
        lab.pass(seconds: 1)
        #expect(lab.results == ["back"])
        lab.isHeard = false
        lab.test()
        lab.test()
        #expect(lab.results == ["back", "another test is on its way"])
        lab.trips.end("the end")
        #expect(lab.results.last == "the end" && !lab.trips.isWaiting)
    }
}
