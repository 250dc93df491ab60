// SPDX-License-Identifier: Apache-2.0
import Glibc
import Synchronization
import Testing

@testable import CarillonTestLimits

/// A test that hangs is named, and others go on.
@Suite("Limits of tests", .limited)
struct LimitTests {
    /// Runs something as a test, and returns why it was ended; nil when it was not.
    private static func run(
        _ limits: RunningTest.Limits = patient, _ function: @Sendable () async throws -> Void
    ) async throws -> String? {
        let why = Mutex<String?>(nil)
        try await withoutActuallyEscaping(function) { function in
            try await RunningTest("a test", limits: limits).run(among: RunningTests(places: 1), function) { text in
                why.withLock { $0 = text }
            }
        }
        return why.withLock { $0 }
    }

    @Test("A test that awaits without progress is reported and cancelled")
    func awaiting() async throws {
        let why = try await Self.run { try? await Task.sleep(for: .seconds(1000)) }
        #expect(why?.contains("awaits something, without progress") == true, "\(why ?? "nothing")")
    }

    @Test("A test whose thread blocks is reported and cancelled")
    func blocking() async throws {
        let why = try await Self.run { while !Task.isCancelled { blockForSeconds(3) } }
        #expect(why?.contains("blocks, without progress") == true, "\(why ?? "nothing")")
    }

    @Test("A test in an endless loop is reported with its part and step, and cancelled")
    func turning() async throws {
        let why = try await Self.run {
            RunningTest.part("a part") { begin in
                begin(7)
                while !Task.isCancelled {}
            }
        }
        #expect(why?.contains("it loops") == true, "\(why ?? "nothing")")
        #expect(why?.hasSuffix("in a part, step 7") == true, "\(why ?? "nothing")")
    }

    @Test("A test that goes on beyond the limit of its whole time is reported and cancelled")
    func endless() async throws {
        var limits = quick
        limits.whole = .milliseconds(900)
        let why = try await Self.run(limits) {
            while !Task.isCancelled { try? await Task.sleep(for: .milliseconds(1)) }
        }
        #expect(why?.contains("hangs: it goes on for") == true, "\(why ?? "nothing")")
    }

    @Test("The limit counts processor time, not elapsed time, and begins anew for each part")
    func parts() async throws {
        var limits = quick
        // Others may have all processors for longer than a moment.
        limits.silence = .seconds(60)
        let why = try await Self.run(limits) {
            for _ in 0..<8 { RunningTest.part("a part") { _ in Self.compute(milliseconds: 100) } }
            // It is another job of the task each time.
            for _ in 0..<8 {
                Self.compute(milliseconds: 100)
                try await Task.sleep(for: .milliseconds(1))
            }
        }
        #expect(why == nil)
    }

    @Test("A test that cancels itself does not count as hanging")
    func cancelled() async throws {
        let why = try await Self.run {
            withUnsafeCurrentTask { $0?.cancel() }
            try? await Task.sleep(for: .seconds(1000))
        }
        #expect(why == nil)
        let event = Mutex(0)
        let task = Task {
            try await RunningTest("a test", limits: patient).run(among: RunningTests(places: 1)) {
                try? await Task.sleep(for: .seconds(1000))
                event.withLock { $0 += 1 }
            } _: { _ in
                event.withLock { $0 += 100 }
            }
        }
        task.cancel()
        try await task.value
        #expect(event.withLock { $0 } == 1)
    }

    @Test("An error that a test throws is rethrown")
    func thrown() async {
        await #expect(throws: CancellationError.self) { _ = try await Self.run { throw CancellationError() } }
    }

    @Test("All of many tests end, and at most as many run at once as there are slots")
    func places() async throws {
        let (counts, tests) = (Counts(), RunningTests(places: 4))
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<40 {
                group.addTask {
                    let test = RunningTest("a test", limits: patient)
                    try? await test.run(among: tests) {
                        await counts.countOne()
                    } _: {
                        Issue.record("it \($0)")
                    }
                }
            }
        }
        #expect(await counts.ended == 40)
        #expect(await counts.most <= 4)
    }

    @Test("Tests that hang do not stop others; when only such are left, the process ends and names them")
    func hanging() async throws {
        let result = await #expect(processExitsWith: .signal(SIGTRAP), observing: [\.standardErrorContent]) {
            await hangBesideAnother()
        }
        let message = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        for part in [
            "test 1 hangs", "test 2 hangs", "test 3 ended", "The run ends here: 1 tests have ended, 2 hang",
            "Not ended: test 1", "Not ended: test 2", "programs ended",
        ] {
            #expect(message.contains(part), "\(part) in: \(message)")
        }
        #expect(!message.contains("test 3 hangs"))
    }

    @Test("A remaining test that awaits, without a thread, ends the process")
    func neverResumed() async throws {
        let result = await #expect(processExitsWith: .signal(SIGABRT), observing: [\.standardErrorContent]) {
            await awaitForEver()
        }
        let message = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(message.contains("Not ended: a test hangs: it awaits"), "\(message)")
    }

    @Test("A remaining test whose tasks hold all threads of the pool ends the process")
    func poolHeld() async throws {
        let result = await #expect(processExitsWith: .signal(SIGABRT), observing: [\.standardErrorContent]) {
            await holdThePool()
        }
        let message = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(message.contains("Not ended: a test hangs: it awaits"), "\(message)")
    }

    @Test("A process that gets SIGTERM names its running tests, and ends by that signal")
    func terminated() async throws {
        let result = await #expect(processExitsWith: .signal(SIGTERM), observing: [\.standardErrorContent]) {
            await beTerminated()
        }
        let message = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(message.contains("Not ended: a test\n") && message.contains("programs ended"), "\(message)")
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
}

private actor Counts {
    private(set) var most = 0
    private(set) var ended = 0
    private var now = 0

    func countOne() async {
        now += 1
        most = max(most, now)
        try? await Task.sleep(for: .milliseconds(5))
        now -= 1
        ended += 1
    }
}

private let quick = RunningTest.Limits(
    silence: .milliseconds(600), processorTime: .milliseconds(300), whole: .seconds(600), ending: .milliseconds(100))

/// With an end that comes late.
private let patient = RunningTest.Limits(
    silence: .milliseconds(600), processorTime: .milliseconds(300), whole: .seconds(600), ending: .seconds(60))

// In processes of their own.

private func hangBesideAnother() async {
    unsetenv("CARILLON_TEST_END")
    signal(SIGTRAP, SIG_DFL)  // without a backtrace
    RunningTests.has(RunningTests.Programs(end: { say("programs ended") }))
    let tests = RunningTests(places: 8)
    await withTaskGroup(of: Void.self) { group in
        for number in 1...3 {
            group.addTask {
                let name = "test \(number)"
                try? await RunningTest(name, limits: quick).run(among: tests) {
                    if number < 3 { blockForSeconds(1000) }
                    for _ in 0..<30 { try? await Task.sleep(for: .milliseconds(50)) }
                    say("\(name) ended")
                } _: { why in
                    say("\(name) \(why)")
                }
            }
        }
    }
}

private func awaitForEver() async {
    unsetenv("CARILLON_TEST_END")
    signal(SIGABRT, SIG_DFL)
    try? await RunningTest("a test", limits: quick).run(among: RunningTests(places: 1)) {
        await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
    } _: { _ in
    }
}

private func holdThePool() async {
    unsetenv("CARILLON_TEST_END")
    signal(SIGABRT, SIG_DFL)
    try? await RunningTest("a test", limits: quick).run(among: RunningTests(places: 1)) {
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<64 {
                group.addTask {
                    await Task.detached { blockForSeconds(1000) }.value
                }
            }
        }
    } _: { _ in
    }
}

private func beTerminated() async {
    unsetenv("CARILLON_TEST_END")
    RunningTests.has(RunningTests.Programs(end: { say("programs ended") }))
    try? await RunningTest("a test", limits: .standard).run(among: .shared) {
        kill(getpid(), SIGTERM)
        try? await Task.sleep(for: .seconds(100))
    } _: { _ in
    }
}

/// As a wait for a lock that nobody gives does.
private func blockForSeconds(_ seconds: UInt32) {
    _ = sleep(seconds)
}

private func say(_ text: String) {
    let line = text + "\n"
    _ = write(STDERR_FILENO, line, line.utf8.count)
}
