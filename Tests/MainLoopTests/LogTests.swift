// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// The log goes where the process's standard error goes, so a process of its own is looked at: `carillond`, which
/// says when it serves, and more with `--verbose`.
@Suite("The log", .serialized, .limited)
struct LogTests {
    @Test("Notices appear in the log with level and domain, and debug messages only on request")
    func levels() throws {
        let bus = try PrivateBus()
        let quiet = try ServiceProcess(on: bus)
        let line = try quiet.nextLogLine { $0.contains("serving") }
        #expect(line.contains("carillon-Message:"), "\(line)")
        try refuseACall(on: bus)
        _ = try quiet.terminate()
        #expect(!quiet.log.contains("refused a call"), "\(quiet.log)")

        let verbose = try ServiceProcess(on: bus, arguments: ["--verbose"])
        try refuseACall(on: bus)
        _ = try verbose.nextLogLine { $0.contains("refused a call") && $0.contains("carillon-DEBUG:") }
        _ = try verbose.terminate()

        let asked = try ServiceProcess(on: bus, environment: ["G_MESSAGES_DEBUG": "carillon"])
        try refuseACall(on: bus)
        _ = try asked.nextLogLine { $0.contains("refused a call") }
        _ = try asked.terminate()
    }

    @Test(
        "A message whose log level is off is not evaluated, and neither are its fields",
        .enabled(if: ProcessInfo.processInfo.environment["G_MESSAGES_DEBUG"] == nil, "G_MESSAGES_DEBUG is set"))
    func lazy() {
        var made = 0
        func text() -> String {
            made += 1
            return "made by a test"
        }
        Log.debug(text(), ["CARILLON_NAME": text()])
        Log.info(text(), ["CARILLON_NAME": text()])
        #expect(made == 0)
        Log.notice(text(), ["CARILLON_NAME": text()])
        #expect(made == 2)
        Log.warning(text())
        #expect(made == 3)
    }

    @Test("A repeated message is logged the 1st, 2nd, 4th, 8th … time, even if counts are added in bulk")
    func throttle() {
        var count: UInt64 = 0
        let logged = (0..<1_000).compactMap { _ in Log.throttle(&count) }
        #expect(logged == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
        #expect(count == 1_000)
        #expect(Log.throttle(&count, times: 20) == nil)
        #expect(Log.throttle(&count, times: 10) == 1_030)
        #expect(Log.throttle(&count, times: 5_000) == 6_030)
    }

    /// A call that the service answers with an error, which it notes at the level debug.
    private func refuseACall(on bus: PrivateBus) throws {
        let result = try Command.run(
            "gdbus",
            [
                "call", "--address", bus.address, "--dest", ServiceProcess.busName, "--object-path",
                ServiceProcess.objectPath, "--method", "org.carillon.NotificationCenter1.RemoveObserver", "4711",
            ], environment: bus.environment)
        try #require(result.standardError.contains("org.carillon.Error.UnknownObserver"), "\(result)")
    }
}

@Suite("Throttling of repeated messages of several subjects", .limited)
struct ThrottleTests {
    @Test("Each of a few subjects is logged at each doubling, and many subjects together no more often")
    func named() {
        var throttle = Log.Throttle<Int>()
        #expect(throttle.note(1) == 1 && throttle.note(1) == 2 && throttle.note(1) == nil)
        #expect(throttle.note(2, times: 3) == 6 && throttle.note(1) == 7 && throttle.note(2) == 8)
        #expect((0..<7).allSatisfy { _ in throttle.note(2) == nil })
        #expect(throttle.note(1, times: 1) == 16 && throttle.note(1) == nil)
        _ = throttle.note(1, times: 10_000)
        #expect((10..<100).compactMap { throttle.note($0) }.count == 31)
    }
}
