// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// What needs the real main thread, in processes of their own: see `Tests/MainThreadProbe`.
@Suite("M5: the main queue under GLib's loop; M3 with GTK", .limited)
struct MainThreadTests {
    private func probe(_ scenario: String, _ environment: [String: String]? = nil) async throws -> CommandResult {
        let path = try Executables.path(of: "carillon-main-thread-probe")
        return try await onOwnThread { try Command.run(path, [scenario], environment: environment) }
    }

    @Test(
        "DispatchQueue.main, the main actor and OperationQueue.main work in each scenario of main loops",
        arguments: [
            // M5, from this thread and others, and what was enqueued before.
            "main-queue",
            // M5: it belongs to the common modes.
            "main-actor-modes",
            // C4: an observer on OperationQueue.main.
            "operation-queue",
            // B13: methods and blocks of the main actor.
            "main-actor-observers",
            // A block that runs a nested loop.
            "nested",
            // M3: others' sources go on under an endless main queue.
            "never-starves",
            // M5: harmless with Foundation's run loop, after dispatchMain(), and where no GLib loop runs.
            "run-loop", "dispatch-main", "not-run",
            // Q1: the default queue of the main thread.
            "default-queue",
            // C4: chains of queues with the main thread in them.
            "chain-to-main", "crossing-main",
            // Q2, M3: behind the main queue's blocks, beside which drawing goes on.
            "idle-last",
        ])
    func mainQueue(scenario: String) async throws {
        let result = try await probe(scenario)
        #expect(result.exitCode == 0 && result.standardOutput == "ok\n", "\(result)")
    }

    @Test(
        "T3: 60,000 waiting deliveries let timers, drawing, main queue and main actor run, in every loop and dialog",
        arguments: ["breath-glib", "breath-dialog", "breath-run-loop", "breath-dispatch-main"])
    func breath(scenario: String) async throws {
        let result = try await probe(scenario)
        #expect(result.exitCode == 0 && result.standardOutput.hasSuffix("ok\n"), "\(result)")
    }

    static let hasGTK = Command.find("Xvfb") != nil

    @Test(
        "M3: a GTK program draws and fires timeouts in a modal dialog, and gets default-mode notifications after it",
        .enabled(if: hasGTK, "there is no Xvfb"))
    func gtk() async throws {
        let server = try RunningCommand(
            "Xvfb", ["-displayfd", "1", "-screen", "0", "400x300x24", "-nolisten", "tcp", "-noreset"])
        let display = try await onOwnThread { try server.nextLine() }
        var environment = ProcessInfo.processInfo.environment
        environment["DISPLAY"] = ":\(display)"
        environment["GDK_BACKEND"] = "x11"
        environment["NO_AT_BRIDGE"] = "1"
        let result = try await probe("gtk", environment)
        #expect(result.exitCode == 0 && result.standardOutput.hasSuffix("ok\n"), "\(result)")
        server.terminate()
    }
}
