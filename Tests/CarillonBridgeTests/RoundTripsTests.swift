// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
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

    @Test("A probe lost behind a query renews the connection")
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

    @Test("Lost probes renew the connection only once if no message has ever come back")
    func neverHeard() throws {
        let lab = try Lab()
        lab.isHeard = false
        for _ in 0..<5 { lab.ask() }
        lab.pass(seconds: 200)
        #expect(lab.broker.connections == 2 && !lab.clock.isAwaited)
    }

    @Test("A probe lost before the first query does not renew the connection, but a probe after a query does")
    func early() throws {
        let lab = try Lab()
        lab.isHeard = false
        lab.pass(seconds: 15)
        #expect(lab.broker.connections == 1 && !lab.trips.isWaiting)
        lab.ask()
        #expect(lab.broker.connections == 2)
    }

    @Test("Lost probes renew the connection at most three times, until a probe comes back again")
    func noLonger() throws {
        let lab = try Lab()
        lab.pass(seconds: 2)
        lab.isHeard = false
        for _ in 0..<8 {
            lab.ask()
            lab.pass(seconds: 4_000)
        }
        #expect(lab.broker.connections == 4)
        lab.isHeard = true
        lab.ask()
        lab.isHeard = false
        lab.ask()
        lab.pass(seconds: 4_000)
        #expect(lab.broker.connections == 5)
    }

    @Test("A lost message of a requested test renews the connection like a lost probe")
    func askedAndLost() throws {
        let lab = try Lab()
        lab.pass(seconds: 2)
        lab.link.showRetained(["a/b"], usesCanary: true) { _ in }
        lab.pass(seconds: 8)
        lab.isHeard = false
        lab.test()
        lab.pass(seconds: 20)
        #expect(lab.results.count == 1 && lab.broker.connections == 2)
    }

    @Test("A refused subscription for probes never renews the connection, and a test fails at once")
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

    @Test("A probe does not count as lost while reading is paused")
    func paused() throws {
        let lab = try Lab()
        lab.pass(seconds: 2)
        lab.isHeard = false
        lab.link.showRetained(["a/b"], usesCanary: true) { _ in }
        lab.pass(seconds: 8)
        // Longer than what was shown is a reason for.
        for _ in 0..<30 {
            lab.link.isReadingPaused = true
            lab.pass(seconds: 4)
            lab.link.isReadingPaused = false
            lab.pass(seconds: 1)
        }
        #expect(lab.broker.connections == 1)
        lab.pass(seconds: 60)
        #expect(lab.broker.connections == 2 && !lab.trips.isWaiting)
    }

    @Test("A probe that arrives after a pause in reading does not renew the connection")
    func readAgain() throws {
        let lab = try Lab()
        lab.pass(seconds: 2)
        lab.isHeard = false
        lab.link.showRetained(["a/b"], usesCanary: true) { _ in }
        lab.pass(seconds: 8)
        lab.link.isReadingPaused = true
        lab.pass(seconds: 60)
        lab.isHeard = true
        lab.link.isReadingPaused = false
        lab.pass(seconds: 60)
        #expect(lab.broker.connections == 1 && !lab.trips.isWaiting)
    }

    @Test("A requested test replaces a running probe, and a second test is refused while the first one runs")
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
        #expect(lab.results == ["back", "another test is in progress"])
        lab.trips.end("the end")
        #expect(lab.results.last == "the end" && !lab.trips.isWaiting)
    }
}
