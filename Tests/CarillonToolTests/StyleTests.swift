// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// Posting styles and run-loop modes on the command line; what they do is tested at the service.
@Suite("carillon: posting styles and run-loop modes", .serialized, .limited)
struct StyleTests {
    @Test("Q7, B3: --posting-style and --coalesce-on reach the service", arguments: BusKind.available)
    func post(kind: BusKind) throws {
        let bell = try Bell(kind)
        let observer = try bell.observe("--count", "4")
        try bell.post("Idle", "--posting-style", "when-idle", "--coalesce-on", "name,object")
        try bell.post("Soon", "-p", "asap", "-c", "name", "-c", "object")
        try bell.post("Now", "--posting-style", "now", "--coalesce-on", "name")
        let queued = try bell.run("post", "Verbose", "--posting-style", "when-idle", "--verbose")
        #expect(queued.standardOutput == "queued\n")
        #expect(try observer.waitForExit() == .exited(0))
        // Every run is a poster of its own; when it is idle is the service's to find.
        #expect(Set(observer.standardOutput.split(separator: "\n")) == ["Idle", "Soon", "Now", "Verbose"])
    }

    @Test("M6, S1, B3: --run-loop-mode and --suspension-behavior reach the service")
    func observe() throws {
        let bell = try Bell()
        let monitor = try RunningCommand(
            "/usr/bin/dbus-monitor",
            ["--session", "type='method_call',interface='org.carillon.NotificationCenter1',member='AddObserver'"],
            environment: bell.bus.environment)
        _ = try monitor.nextLine { $0.contains("NameLost") }  // it has become a monitor
        let observer = try bell.observe(
            "Ding", "--run-loop-mode", "event-tracking", "--suspension-behavior", "hold", "--count", "1")
        for text in ["suspension-behavior", "hold", "run-loop-mode", "event-tracking"] {
            _ = try monitor.nextLine { $0.contains("\"\(text)\"") }
        }
        try bell.post("Ding")
        #expect(try observer.waitForExit() == .exited(0))
    }
}
