// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

@testable import CarillonService

/// What counts as a sign that a client has read.
@Suite("A4, B6: results of probes", .limited)
struct ClientProberTests {
    private final class Scene {
        let bus = QuietBus()
        let prober: ClientProber
        private(set) var answers = 0
        private(set) var refusals = 0

        init() {
            // Without a control connection there are no barriers to wait for: each passes at once.
            prober = ClientProber(bus: bus, barrier: BusBarrier(bus: bus))
            prober.onAnswer = { [unowned self] _, _ in answers += 1 }
            prober.onRefusal = { [unowned self] _, _ in refusals += 1 }
        }

        /// What came of it, when the bus has answered what it was asked besides.
        func outcome(of ping: QuietBus.Request?, _ result: Result<Message, BusError>) -> (answers: Int, refusals: Int) {
            ping?.completion?(result)
            while let request = bus.next("GetId") { request.completion?(.success(QuietBus.done)) }
            return (answers, refusals)
        }
    }

    private static func error(_ name: String) -> BusError {
        BusError(name: InterfaceName(rawValue: name)!, message: "no")
    }

    @Test(
        "B6: every reply of a client to a Ping counts as an answer, also an error",
        arguments: [
            nil, "org.freedesktop.DBus.Error.UnknownMethod", "org.freedesktop.DBus.Error.UnknownObject",
            "org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.Failed", "com.example.No",
            // By the time: a client may say that, too.
            "org.freedesktop.DBus.Error.NoReply",
        ])
    func answered(error: String?) {
        let scene = Scene()
        scene.prober.probe(":1.7")
        let ping = scene.bus.next("Ping")
        #expect(ping?.message.destination == ":1.7")
        let outcome = scene.outcome(of: ping, error.map { .failure(Self.error($0)) } ?? .success(QuietBus.done))
        #expect(outcome == (1, 0))
        scene.bus.pass(milliseconds: 100_000)
        #expect(scene.bus.waiting.isEmpty, "it is not asked again")
    }

    @Test(
        "A4: a Ping that the bus refuses acknowledges no window, and is repeated until the bus accepts it")
    func refused() {
        let scene = Scene()
        scene.prober.probe(":1.7")
        var outcome = (answers: 0, refusals: 0)
        for number in 1...8 {
            outcome = scene.outcome(
                of: scene.bus.next("Ping"), .failure(Self.error("org.freedesktop.DBus.Error.LimitsExceeded")))
            #expect(outcome == (0, number))
            #expect(scene.bus.next("Ping") == nil, "not at once")
            scene.bus.pass(milliseconds: 1000 << Int64(min(number - 1, 5)))
        }
        outcome = scene.outcome(of: scene.bus.next("Ping"), .success(QuietBus.done))
        #expect(outcome == (1, 8))
    }

    @Test("A4: a Ping that times out is repeated, and a Ping whose connection ended is not")
    func silent() {
        let scene = Scene()
        scene.prober.probe(":1.7")
        var ping = scene.bus.next("Ping")
        scene.bus.pass(milliseconds: 60_000)
        #expect(scene.outcome(of: ping, .failure(Self.error("org.freedesktop.DBus.Error.NoReply"))) == (0, 0))
        ping = scene.bus.next("Ping")
        #expect(ping != nil)
        // So long it was waited for the first one; it is twice as long from now on.
        scene.bus.pass(milliseconds: 60_000)
        #expect(scene.outcome(of: ping, .failure(Self.error("org.freedesktop.DBus.Error.Disconnected"))) == (0, 0))
        scene.bus.pass(milliseconds: 200_000)
        #expect(scene.bus.waiting.isEmpty)
    }

    @Test("A4: a forgotten client is not probed again")
    func forgotten() {
        let scene = Scene()
        scene.prober.probe(":1.7")
        _ = scene.outcome(of: scene.bus.next("Ping"), .failure(Self.error("org.freedesktop.DBus.Error.LimitsExceeded")))
        scene.prober.forget(":1.7")
        scene.bus.pass(milliseconds: 100_000)
        #expect(scene.bus.waiting.isEmpty)
    }
}
