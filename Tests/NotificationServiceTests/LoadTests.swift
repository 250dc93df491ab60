// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// The service between posters that are fast and observers that are not.
///
/// `CARILLON_LOAD` sets how many notifications are posted, and `CARILLON_BIN_DIR` where optimised programs are.
@Suite("A4, S4: load and observers that do not read", .serialized, .limited)
struct LoadTests {
    /// What one client may cost the service: its queue, counted as the limit `queued-bytes-per-client` does, times what
    /// an entry really takes (objects have headers, arrays grow by doubling).
    private static let queueBytes = 8 << 20
    private static let totalQueueBytes = 64 << 20
    /// Smaller than the standard ones, so that the number of posts of a debug build fills them.
    private static let limits = ["queued-bytes-per-client": queueBytes, "queued-bytes": totalQueueBytes]
    private static let factor = 2
    /// What the load itself may cost either of them: messages on their way, whatever the number of posts.
    private static let base = 4 << 20

    @Test(
        "A4: an observer gets all notifications while another observer, registered later, is stopped",
        arguments: BusKind.available)
    func stoppedSecond(kind: BusKind) throws {
        let load = try Load(kind, limits: Self.limits)
        let healthy = try load.observer()
        let stopped = try load.stoppedObserver()
        try expectNothingSuffers(load, healthy: healthy, stopped: [stopped], "one stopped, registered second")
    }

    @Test(
        "A4: an observer gets all notifications while another observer, registered earlier, is stopped",
        arguments: BusKind.available)
    func stoppedFirst(kind: BusKind) throws {
        let load = try Load(kind, limits: Self.limits)
        let stopped = try load.stoppedObserver()
        let healthy = try load.observer()
        try expectNothingSuffers(load, healthy: healthy, stopped: [stopped], "one stopped, registered first")
    }

    @Test("A4: an observer gets all notifications while ten other observers are stopped", arguments: BusKind.available)
    func tenStopped(kind: BusKind) throws {
        let load = try Load(kind, limits: Self.limits)
        var stopped = try (0..<5).map { _ in try load.stoppedObserver() }
        let healthy = try load.observer()
        stopped += try (0..<5).map { _ in try load.stoppedObserver() }
        try expectNothingSuffers(load, healthy: healthy, stopped: stopped, "ten stopped")
    }

    @Test(
        "A4: an observer gets all notifications while another is stopped before its first answer to a Ping",
        arguments: BusKind.available)
    func neverAnswered(kind: BusKind) throws {
        let load = try Load(kind, limits: Self.limits)
        let healthy = try load.observer()
        let stopped = try load.observerThatNeverAnswered()
        let client = try Client(on: load.bus)
        try eventually("both are registered") { try client.listClients().count == 2 }
        try expectNothingSuffers(load, healthy: healthy, stopped: [stopped], "one stopped before its first answer")
    }

    @Test("D3: a burst of posts is delivered without a loss or a crash", arguments: BusKind.available)
    func burst(kind: BusKind) throws {
        let load = try Load(kind)
        let observers = try [load.observer(), load.observer()]
        let growth = try load.post(Load.burst)
        load.note("burst", growth)
        for observer in observers { try expectComplete(observer, of: Load.burst) }
        #expect(try load.service.terminate() == .exited(0))
    }

    @Test("D3: a burst of posts without answers is delivered without a loss or a crash", arguments: BusKind.available)
    func unpacedBurst(kind: BusKind) throws {
        let load = try Load(kind)
        let observers = try [load.observer(), load.observer()]
        load.note("burst that waits for nothing", try load.post(Load.unpacedBurst, arguments: ["--unpaced"]))
        for observer in observers { try expectComplete(observer, of: Load.unpacedBurst) }
        #expect(try load.service.terminate() == .exited(0))
    }

    @Test("A4: other clients register, post and receive while an observer is stopped", arguments: BusKind.available)
    func disturbsNobody(kind: BusKind) throws {
        let load = try Load(kind, limits: Self.limits)
        let stopped = try load.stoppedObserver()
        _ = try load.post()
        // The stopped one's queue is full now, and stays so.
        let other = try Client(on: load.bus)
        try other.addObserver("load")
        for number in 1...200 {
            #expect(try other.post("load") == 2)
            try other.run("notification \(number)") { other.signals.count == number }
        }
        #expect(other.signals.map(\.sequence) == Array(1...200))
        #expect(load.service.isRunning)
        stopped.resume()
    }

    // MARK: Expectations

    private func expectNothingSuffers(
        _ load: Load, healthy: Observer, stopped: [Observer], _ name: String
    ) throws {
        let growth = try load.post()
        load.note("\(Load.count) posts, \(name)", growth)
        try expectComplete(healthy, of: Load.count)
        #expect(growth.bus < 4 << 20, "the bus grew by \(growth.bus) bytes")
        let bound = Self.base + Self.factor * min(Self.totalQueueBytes, stopped.count * Self.queueBytes)
        #expect(growth.service < bound, "the service grew by \(growth.service) bytes")

        for observer in stopped { observer.resume() }
        for observer in stopped {
            let report = try observer.report()
            #expect(report.received + report.dropped == Load.count, "\(report)")
            #expect(report.sequence == Load.count + 1, "\(report)")
            #expect(report.faults == 0, "\(report)")
            // The newest are those that were kept.
            #expect(report.last == Load.count - 1, "\(report)")
            #expect(report.received > 0, "\(report)")
        }
        #expect(try load.service.terminate() == .exited(0), "\(load.service.transcript)")
    }

    /// All of them, in order, without a loss.
    private func expectComplete(_ observer: Observer, of count: Int) throws {
        let report = try observer.report()
        #expect(report.received == count, "\(report)")
        #expect(report.dropped == 0, "\(report)")
        #expect(report.sequence == count + 1, "\(report)")
        #expect(report.last == count - 1, "\(report)")
        #expect(report.faults == 0, "\(report)")
    }
}
