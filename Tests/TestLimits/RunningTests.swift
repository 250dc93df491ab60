// SPDX-License-Identifier: Apache-2.0
import Glibc

/// The tests that run at this moment in this process.
///
/// A thread that blocks, or loops, can't be ended. So a test that hangs stays, the others go on, and when only such are left
/// the process ends.
public final class RunningTests: Sendable {
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

    /// Those of the process.
    #if THREAD_SANITIZER
        // What the sanitizer keeps of each thread makes many of them far slower than so many runs.
        static let shared = RunningTests(places: 2)
    #else
        static let shared = RunningTests(places: 8)
    #endif
    /// Time without a beginning or an end of a test, after which none that could begin is on its way.
    private static let calm = Duration.seconds(3)

    private struct State {
        var running: [ObjectIdentifier: RunningTest] = [:]
        var hanging: [(test: RunningTest, why: String)] = []
        var waiting: [(test: RunningTest, continuation: CheckedContinuation<Void, Never>)] = []
        var ended = 0
        var lastChange = ContinuousClock.now
        var isOver = false

        /// A test that hangs has no place any more.
        var occupied: Int { running.count - hanging.count }

        mutating func beginNext(within places: Int) -> CheckedContinuation<Void, Never>? {
            guard occupied < places, !waiting.isEmpty else { return nil }
            let next = waiting.removeFirst()
            begin(next.test)
            return next.continuation
        }

        mutating func begin(_ test: RunningTest) {
            running[ObjectIdentifier(test)] = test
            lastChange = .now
            test.begins()
        }
    }

    private let places: Int
    private let state = Guarded(State())

    /// - Parameter places: so many run at once; others wait.
    init(places: Int) {
        self.places = places
    }

    /// Waits for a place.
    func begin(_ test: RunningTest) async {
        _ = Self.isHeard
        await withCheckedContinuation { continuation in
            let hasPlace = state.withLock { state in
                guard state.occupied < places else {
                    state.waiting.append((test, continuation))
                    return false
                }
                state.begin(test)
                return true
            }
            if hasPlace { continuation.resume() }
        }
    }

    func end(_ test: RunningTest) {
        let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
            state.running[ObjectIdentifier(test)] = nil
            state.hanging.removeAll { $0.test === test }
            state.ended += 1
            state.lastChange = .now
            return state.beginNext(within: places)
        }
        next?.resume()
    }

    /// The test was cancelled, and goes on all the same. Does not return where only such tests are left.
    func hangs(_ test: RunningTest, _ why: String) {
        let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
            guard !state.hanging.contains(where: { $0.test === test }) else { return nil }
            state.hanging.append((test, why))
            state.lastChange = .now
            return state.beginNext(within: places)
        }
        next?.resume()
        let (hanging, ended): ([(test: RunningTest, why: String)], Int) = state.withLock { state in
            let isLast = state.hanging.count == state.running.count
            guard isLast, ContinuousClock.now - state.lastChange > Self.calm, !state.isOver else { return ([], 0) }
            state.isOver = true
            return (state.hanging, state.ended)
        }
        guard !hanging.isEmpty else { return }
        Self.say("The run ends here: \(ended) tests have ended, \(hanging.count) hang.")
        Self.say("Others that are behind them, in a suite whose tests come one after the other, did not run.")
        for (test, why) in hanging { Self.say("Not ended: \(test.name) \(why)") }
        Self.programs.withLock { $0 }.end()
        for (test, _) in hanging { test.trap() }
        abort()
    }

    // MARK: The process

    private static let programs = Guarded(Programs())
    private static let isHeard: Void = hearTermination()

    /// Makes known that there may be programs.
    public static func has(_ programs: Programs) {
        self.programs.withLock { $0 = programs }
    }

    static func report() -> String { programs.withLock { $0 }.report() }

    /// Has the process say which tests run when it is ended by SIGTERM.
    private static func hearTermination() {
        var old = sigaction()
        sigaction(SIGTERM, nil, &old)
        // Somebody else has it.
        guard old.__sigaction_handler.sa_handler == nil else { return }
        sem_init(terminationBell, 0, 0)
        startThread { waitForTermination() }
        signal(SIGTERM) { _ in _ = sem_post(terminationBell) }
    }

    private static func waitForTermination() {
        while sem_wait(terminationBell) != 0 {}
        let names = shared.state.withLock { $0.running.values.map(\.name).sorted() }
        say("Ended by SIGTERM, while \(names.count) tests ran.")
        for name in names { say("Not ended: \(name)") }
        programs.withLock { $0 }.end()
        signal(SIGTERM, SIG_DFL)
        kill(getpid(), SIGTERM)
    }

    private static func say(_ text: String) {
        let line = text + "\n"
        _ = write(STDERR_FILENO, line, line.utf8.count)
        // Where tools/run-swift-test says it again, behind the backtrace.
        guard let path = getenv("CARILLON_TEST_END") else { return }
        let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard file >= 0 else { return }
        _ = write(file, line, line.utf8.count)
        close(file)
    }
}

/// Unsafe only by its type: a semaphore is used by any thread and by handlers of signals. It is made before the handler.
private nonisolated(unsafe) let terminationBell = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)
