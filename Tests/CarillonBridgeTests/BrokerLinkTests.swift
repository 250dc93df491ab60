// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import CarillonBridge

@Suite("G2: reconnection of a bridge to its broker", .limited)
struct BrokerLinkTests {
    /// Time that goes on when the test says so. Sendable: its context is run by the test's thread only.
    private final class Clock: LoopClock, @unchecked Sendable {
        private(set) var microseconds: Int64 = 1_000_000_000
        private var expected: Int64 = 0

        func expect(at microseconds: Int64) { expected = microseconds }

        /// Goes on to the time of the timer that was set last.
        func goOn() { microseconds = max(microseconds, expected) }

        func goOn(seconds: Int64) { microseconds += seconds * 1_000_000 }

        /// How many seconds are left until then.
        var pause: Double { Double(expected - microseconds) / 1e6 }
    }

    private let clock = Clock()
    private let context: MainContext
    private let link: BrokerLink

    init() throws {
        context = MainContext(clock: clock)
        // Nobody listens at that port, so that each attempt fails at once.
        link = try BrokerLink(
            .init(host: "127.0.0.1", port: 1, clientID: "bridge"), .own(address: "", context: context), context: context
        )
    }

    private var isWaiting: Bool {
        if case .waiting = link.state { true } else { false }
    }

    private func fail() throws {
        try eventually("the end of the attempt") {
            context.iterate(mayBlock: false)
            return isWaiting
        }
    }

    /// The pause that follows a failed attempt, in seconds.
    private func pauseAfterFailure() throws -> Double {
        try fail()
        let pause = clock.pause
        clock.goOn()
        context.iterate(mayBlock: false)
        return pause
    }

    /// A connection that lasts so many seconds.
    private func endConnection(after seconds: Int64) throws {
        try fail()
        link.connected(sessionPresent: false, limits: BrokerLimits())
        #expect(link.isConnected)
        clock.goOn(seconds: seconds)
        link.disconnected(MQTTError(.connectionLost))
    }

    /// Whether the pauses are these, give or take a quarter.
    private func expectPauses(_ pauses: [Double]) throws {
        for pause in pauses {
            let taken = try pauseAfterFailure()
            #expect((pause * 0.75...pause * 1.25).contains(taken), "\(taken) s in the place of \(pause)")
        }
    }

    @Test("The reconnection pause doubles from 1 to 60 s, and restarts at 1 s after a connection that lasted")
    func pauses() throws {
        link.connect()
        try expectPauses([1, 2, 4, 8, 16, 32, 60, 60])
        // A broker that takes the connection and ends it is tried as seldom.
        try endConnection(after: 0)
        try expectPauses([60])
        try endConnection(after: 10)
        try expectPauses([1, 2])
    }
}
