// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestLimits
import TestSupport
import Testing

/// A poster that waits for no answer and posts faster than anybody can deliver.
///
/// Nobody but the bus can make it wait. dbus-daemon does, when what it has read of a connection and not passed on is more
/// than `max_incoming_bytes`; with the 1 GB of a session bus that is never. dbus-broker never makes a sender wait.
/// `CARILLON_LOAD` and `CARILLON_BIN_DIR` are those of ``LoadTests``.
@Suite("E4: floods", .serialized, .limited)
struct FloodTests {
    enum Bus: CaseIterable, CustomStringConvertible {
        case daemon, daemonThatBounds, broker

        var description: String {
            switch self {
            case .daemon: "dbus-daemon"
            case .daemonThatBounds: "dbus-daemon that reads no more than 8 MiB ahead"
            case .broker: "dbus-broker"
            }
        }

        var kind: BusKind { self == .broker ? .dbusBroker : .dbusDaemon }
        var limits: [String: Int] { self == .daemonThatBounds ? ["max_incoming_bytes": 8 << 20] : [:] }

        static let available = allCases.filter { BusKind.available.contains($0.kind) }
    }

    @Test("E4: others are served while it lasts, and what is lost of it is announced", arguments: Bus.available)
    func flood(bus kind: Bus) throws {
        let load = try Load(kind.kind, busLimits: kind.limits)
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
        if kind == .daemonThatBounds {
            #expect(growth.bus < 64 << 20, "the bus grew by \(growth.bus) bytes")
            #expect(report.dropped == 0, "who reads loses nothing: \(report)")
        }
        load.note(
            "\(Load.flood) posts of 3 kB, \(kind), \(answered) of another answered, longest \(longest), "
                + "lost \(report.dropped)", growth)
    }

    /// The measure for ``flood(bus:)``: what the bus alone makes others wait, when a flood goes to one that only reads.
    @Test("a program that does nothing but read answers others behind a flood", arguments: Bus.available)
    func sink(bus kind: Bus) throws {
        let bus = try PrivateBus(kind.kind, limits: kind.limits)
        let program = try Executables.path(of: "bus-load")
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

    @Test(
        "E4: with hardly any room for what waits nobody is shut out, and what is lost is announced",
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
