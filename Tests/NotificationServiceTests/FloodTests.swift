// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

@testable import CarillonService

/// A poster that waits for no answer and posts faster than anybody can deliver.
///
/// Nobody but the bus can make it wait, and in a session no bus does: dbus-daemon does from 1 GB on, dbus-broker never.
/// `CARILLON_LOAD` and `CARILLON_BIN_DIR` are those of ``LoadTests``.
@Suite("E4: floods", .serialized, .limited)
struct FloodTests {
    @Test(
        "E4: other callers are served during a flood, and the losses of the flood are reported",
        arguments: BusKind.available)
    func flood(bus kind: BusKind) throws {
        let load = try Load(kind)
        let observer = try load.observer()
        let other = try Client(on: load.bus)
        try other.addObserver("other")
        var (answered, longest) = (0, Duration.zero)
        let clock = ContinuousClock()
        let growth = try load.post(
            Load.flood, arguments: ["--unpaced"], size: 3000,
            meanwhile: {
                let start = clock.now
                let receivers = try other.post("other")
                #expect(receivers == 1)
                let wait = clock.now - start
                (answered, longest) = (answered + 1, max(longest, wait))
            })
        let report = try observer.report()
        #expect(report.received + report.dropped == Load.flood, "\(report)")
        #expect(report.faults == 0, "\(report)")
        try other.run("its own") { other.signals.count == answered }
        #expect(other.lost == 0)
        load.note(
            "\(Load.flood) posts of 3 kB, \(kind), \(answered) of another answered, longest \(longest), "
                + "lost \(report.dropped)", growth)
    }

    /// The measure for ``flood(bus:)``: what the bus alone makes others wait, when a flood goes to one that only reads.
    @Test(
        "Baseline without the service: a program that only reads answers other callers during a flood",
        arguments: BusKind.available)
    func sink(bus kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let program = try Executables.path(of: "carillon-bus-load")
        let sink = try RunningCommand(program, ["sink", ServiceProcess.busName], environment: bus.environment)
        _ = try sink.nextLine(within: .start) { $0.hasPrefix("ready") }
        let other = try Client(on: bus)
        let poster = try RunningCommand(
            program, ["post", "load", "--count", "\(Load.flood)", "--size", "3000", "--unpaced"],
            environment: bus.environment)
        var (answered, longest) = (0, Duration.zero)
        let clock = ContinuousClock()
        try eventually("all are posted", within: .load, every: .milliseconds(20)) {
            let start = clock.now
            let receivers = try other.post("other")
            #expect(receivers == 0)
            (answered, longest) = (answered + 1, max(longest, clock.now - start))
            return !poster.isRunning
        }
        #expect(poster.status == .exited(0), "\(poster.transcript)")
        Load.note(
            "\(Load.flood) posts of 3 kB, \(kind), to one that only reads, \(answered) answered, longest \(longest)")
    }

    @Test("S4: a client that starts to observe during a flood is informed only of losses after its registration")
    func observedMeanwhile() {
        var lost = LostPosts()
        let center = DistributedCenter()
        let outline = PostOutline(name: "Ding", object: "", isImmediate: false)
        func lose() {
            if lost.addAgain(outline, from: ":1.9", registered: center.registeredCount) { return }
            let reach = center.reach(ofPost: "Ding", object: "", deliverImmediately: false)!
            lost.add(outline, from: ":1.9", reaching: reach, registered: center.registeredCount)
        }
        for _ in 0..<3 { lose() }
        var effects: [Effect] = []
        _ = try? center.addObserver(of: ":1.1", name: "Ding", object: "", options: ObserverOptions(), effects: &effects)
        for _ in 0..<2 { lose() }
        lost.collect()
        #expect(lost.unreportedLoss.map(\.count).sorted() == [2, 3] && !lost.isEmpty)
        effects = []
        while !lost.unreportedLoss.isEmpty { center.losePosts(&lost.unreportedLoss, effects: &effects) }
        #expect(lost.isEmpty && center.statistics.posted == 5 && center.statistics.dropped == 2)
    }

    @Test("E4: losses that repeat before their report are merged, so that their memory is bounded")
    func lostAgain() {
        var lost = LostPosts()
        let center = DistributedCenter()
        var effects: [Effect] = []
        let names = (0..<100).map { "Ding\($0)" }
        for name in names {
            _ = try? center.addObserver(
                of: ":1.1", name: name, object: "", options: ObserverOptions(), effects: &effects)
        }
        func lose() {
            for name in names {
                lost.add(1, from: ":1.9", reaching: center.reach(ofPost: name, object: "", deliverImmediately: false)!)
            }
        }
        lose()
        lost.collect()
        #expect(lost.unreportedLoss.count == 100)
        let before = lost.byteCount
        for _ in 0..<50 {
            lose()
            lost.collect()
        }
        #expect(lost.unreportedLoss.count == 100, "these come first")
        #expect(before > 12_000 && before < 14_000, "\(before)")
        #expect(lost.byteCount > 2 * 12_000 && lost.byteCount < 2 * 14_000, "each of them twice: \(lost.byteCount)")
        while !lost.isEmpty {
            lost.collect()
            center.losePosts(&lost.unreportedLoss, effects: &effects)
        }
        #expect(center.statistics.posted == 5100 && center.statistics.dropped == 5100 && lost.byteCount == 0)
    }

    @Test(
        "E4: with hardly any space for waiting calls all clients are served, and losses are announced",
        arguments: [0, 500_000])
    func hardlyAnyRoom(bytes: Int) throws {
        let load = try Load(.dbusDaemon, limits: ["waiting-call-bytes": bytes])
        let observer = try load.observer()
        let other = try Client(on: load.bus)
        try other.addObserver("other")
        _ = try load.post(5000, arguments: ["--unpaced"], meanwhile: { _ = try other.post("other") })
        let report = try observer.report()
        #expect(report.received + report.dropped == 5000, "\(report)")
        #expect(report.faults == 0, "\(report)")
    }
}
