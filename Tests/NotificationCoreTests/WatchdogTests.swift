import Glibc
import Testing

@Suite("Watchdog")
struct WatchdogTests {
    @Test("A call that does not end ends the process, and is named with its step")
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

    @Test("Time that passes while the thread has no processor does not count")
    func waiting() {
        Watchdog.watch("a wait", seconds: 0.05) { _ in _ = usleep(400_000) }
    }
}
