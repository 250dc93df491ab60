// SPDX-License-Identifier: Apache-2.0
import Glibc
import Synchronization

/// The tests that run at this moment in this process.
///
/// A thread that blocks, or turns in a loop, can't be ended. So a test that is stuck stays, the others go on, and when none is
/// left but such, the process ends.
public enum RunningTests {
    /// So many run at once; others wait.
    #if THREAD_SANITIZER
        // What the sanitizer keeps of each thread makes many of them far slower than so many runs.
        static let most = 2
    #else
        static let most = 8
    #endif
    /// In which no test begins or ends, before all count as stuck that can be.
    private static let calm = Duration.seconds(3)

    private struct State {
        var running: [ObjectIdentifier: RunningTest] = [:]
        var stuck: [(test: RunningTest, why: String)] = []
        var waiting: [CheckedContinuation<Void, Never>] = []
        var places = most
        var ended = 0
        var lastChange = ContinuousClock.now
        var isOver = false
    }

    private static let state = Mutex(State())
    private static let programs = Mutex<Programs>(Programs())
    private static let isHeard: Void = hearStop()

    /// What can be done with the programs that tests have started.
    public struct Programs: Sendable {
        /// What those of the current test wrote last.
        let report: @Sendable () -> String
        /// Ends all, as they do not end with a process that ends early.
        let end: @Sendable () -> Void

        public init(report: @escaping @Sendable () -> String = { "" }, end: @escaping @Sendable () -> Void = {}) {
            (self.report, self.end) = (report, end)
        }
    }

    /// Makes known that there may be programs.
    public static func has(_ programs: Programs) {
        self.programs.withLock { $0 = programs }
    }

    static func report() -> String { programs.withLock { $0 }.report() }

    static func begin(_ test: RunningTest) async {
        _ = isHeard
        await withCheckedContinuation { continuation in
            let hasPlace = state.withLock { state in
                guard state.places > 0 else {
                    state.waiting.append(continuation)
                    return false
                }
                state.places -= 1
                return true
            }
            if hasPlace { continuation.resume() }
        }
        state.withLock { state in
            state.running[ObjectIdentifier(test)] = test
            state.lastChange = .now
        }
    }

    static func end(_ test: RunningTest) {
        let next = state.withLock { state in
            state.running[ObjectIdentifier(test)] = nil
            state.stuck.removeAll { $0.test === test }
            state.ended += 1
            state.lastChange = .now
            if state.waiting.isEmpty { state.places += 1 }
            return state.waiting.isEmpty ? nil : state.waiting.removeFirst()
        }
        next?.resume()
    }

    /// The test was cancelled, and goes on all the same. Does not return when it was the last one that anything could come of.
    static func isStuck(_ test: RunningTest, _ why: String) {
        let (stuck, ended): ([(test: RunningTest, why: String)], Int) = state.withLock { state in
            if !state.stuck.contains(where: { $0.test === test }) { state.stuck.append((test, why)) }
            let isLast = state.stuck.count == state.running.count && ContinuousClock.now - state.lastChange > calm
            guard isLast, !state.isOver else { return ([], 0) }
            state.isOver = true
            return (state.stuck, state.ended)
        }
        guard !stuck.isEmpty else { return }
        say("The run ends here: \(ended) tests have ended, \(stuck.count) never do, and no other can begin.")
        for (test, why) in stuck { say("Never ended: \(test.name) \(why)") }
        programs.withLock { $0 }.end()
        for (test, _) in stuck { test.trap() }
        abort()
    }

    // MARK: An end from outside

    /// Ended by SIGTERM, it says which tests ran.
    private static func hearStop() {
        var old = sigaction()
        sigaction(SIGTERM, nil, &old)
        // Somebody else has it.
        guard old.__sigaction_handler.sa_handler == nil else { return }
        sem_init(stopBell, 0, 0)
        startThread { waitForStop() }
        signal(SIGTERM) { _ in _ = sem_post(stopBell) }
    }

    private static func waitForStop() {
        while sem_wait(stopBell) != 0 {}
        let names = state.withLock { $0.running.values.map(\.name).sorted() }
        say("Ended by SIGTERM, while \(names.count) tests ran.")
        for name in names { say("Not ended: \(name)") }
        programs.withLock { $0 }.end()
        signal(SIGTERM, SIG_DFL)
        kill(getpid(), SIGTERM)
    }

    private static func say(_ text: String) {
        let line = text + "\n"
        _ = write(STDERR_FILENO, line, line.utf8.count)
    }
}

/// Made before the handler that uses it.
private nonisolated(unsafe) let stopBell = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)
