// SPDX-License-Identifier: Apache-2.0
import Glibc
import TestLimits
import Testing

/// The limit that ends what nothing can interrupt.
@Suite("Watchdog", .timeLimit(.minutes(20)), .disabled(if: isQuick, "it tests the test"))
struct WatchdogTests {
    @Test("A part that does not end ends the process, and is named with its step")
    func endless() async throws {
        let result = await #expect(processExitsWith: .signal(SIGTRAP), observing: [\.standardErrorContent]) {
            signal(SIGTRAP, SIG_DFL)  // without a backtrace
            Watchdog.watch("a loop", seconds: 0.05) { begin in
                begin(7)
                while getpid() != 0 {}
            }
        }
        let message = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(message.contains("a loop, step 7, does not end"), "\(message)")
    }

    @Test("A test that does not end ends the process, also behind parts that did")
    func endlessTest() async throws {
        let result = await #expect(processExitsWith: .signal(SIGTRAP), observing: [\.standardErrorContent]) {
            signal(SIGTRAP, SIG_DFL)
            await Watchdog.watchTest("a test", seconds: 0.05) {
                for _ in 0..<10 { Watchdog.watch("a part") { _ in } }
                while getpid() != 0 {}
            }
        }
        let message = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(message.contains("a test does not end"), "\(message)")
    }

    @Test("Time that passes while the thread has no processor does not count")
    func waiting() {
        Watchdog.watch("a wait", seconds: 0.05) { _ in _ = usleep(400_000) }
    }

    @Test("The time of a test begins anew behind each of its parts")
    func parts() async {
        await Watchdog.watchTest("a test of many parts", seconds: 0.3) {
            for _ in 0..<8 {
                Watchdog.watch("a part") { _ in Self.compute(milliseconds: 100) }
            }
        }
    }

    /// Takes processor time.
    private static func compute(milliseconds: Int) {
        var begin = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin)
        for _ in 0..<10_000_000 {
            var now = timespec()
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)
            let passed = (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1_000_000
            if passed >= milliseconds { return }
        }
    }

    @Suite("A watched suite", .watched)
    struct Watched {
        @Test("A test of a watched suite is watched on the thread that it runs on", arguments: 0..<3)
        func thread(_ number: Int) {
            #expect(Watchdog.watchesThisThread)
        }
    }
}
