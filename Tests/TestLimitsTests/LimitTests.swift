// SPDX-License-Identifier: Apache-2.0
import Glibc
import Synchronization
import Testing

@testable import TestLimits

/// A test of which nothing comes is named, and others go on. One at a time, as each takes a place and others besides.
@Suite("Limits of tests", .serialized, .limited)
struct LimitTests {
    /// Runs something as a test, and returns why it was ended; nil when it was not.
    private static func run(
        _ limits: RunningTest.Limits = quick, _ function: @Sendable () async throws -> Void
    ) async throws -> String? {
        let why = Mutex<String?>(nil)
        try await withoutActuallyEscaping(function) { function in
            try await RunningTest("a test", limits: limits).run(function) { text in why.withLock { $0 = text } }
        }
        return why.withLock { $0 }
    }

    @Test("A test that awaits in vain is told so, and cancelled")
    func awaiting() async throws {
        let why = try await Self.run { try? await Task.sleep(for: .seconds(1000)) }
        #expect(why?.contains("awaits what did not come") == true, "\(why ?? "nothing")")
    }

    @Test("So is one whose thread blocks")
    func blocking() async throws {
        let why = try await Self.run { while !Task.isCancelled { blockForSeconds(1) } }
        #expect(why?.contains("blocks on what did not come") == true, "\(why ?? "nothing")")
    }

    @Test("So is a loop without an end, and its part and step are named")
    func turning() async throws {
        let why = try await Self.run {
            RunningTest.part("a part") { begin in
                begin(7)
                while !Task.isCancelled {}
            }
        }
        #expect(why?.contains("a loop without an end") == true, "\(why ?? "nothing")")
        #expect(why?.hasSuffix("in a part, step 7") == true, "\(why ?? "nothing")")
    }

    @Test("So is one that goes on for ever, by the time that all of it may take")
    func endless() async throws {
        var limits = quick
        limits.whole = .milliseconds(900)
        let why = try await Self.run(limits) {
            while !Task.isCancelled { try? await Task.sleep(for: .milliseconds(1)) }
        }
        #expect(why?.contains("does not end, within") == true, "\(why ?? "nothing")")
    }

    @Test("Processor time counts, not the time in which others have the processor; each part has it anew")
    func parts() async throws {
        let why = try await Self.run {
            for _ in 0..<8 { RunningTest.part("a part") { _ in Self.compute(milliseconds: 100) } }
            // It is another job of the task each time.
            for _ in 0..<8 {
                Self.compute(milliseconds: 100)
                try await Task.sleep(for: .milliseconds(1))
            }
        }
        #expect(why == nil)
    }

    @Test("What a test throws is thrown")
    func thrown() async {
        await #expect(throws: CancellationError.self) { _ = try await Self.run { throw CancellationError() } }
    }

    @Test("Each of many tests has a place in the end, and so many run at once")
    func places() async throws {
        let counts = Counts()
        await withTaskGroup(of: String?.self) { group in
            for _ in 0..<40 { group.addTask { try? await Self.run { await counts.countOne() } } }
            for await why in group { #expect(why == nil) }
        }
        #expect(await counts.ended == 40)
        #expect(await counts.most <= RunningTests.most)
    }

    @Test("A test that is stuck leaves the others their time; the process ends when no other is left, and names it")
    func stuck() async throws {
        let result = await #expect(processExitsWith: .signal(SIGTRAP), observing: [\.standardErrorContent]) {
            await stayStuck()
        }
        let message = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        for part in [
            "test 1 does not end", "test 2 does not end", "test 3 ended",
            "The run ends here: 1 tests have ended, 2 never do",
            "Never ended: test 1", "Never ended: test 2", "programs ended",
        ] {
            #expect(message.contains(part), "\(part) in: \(message)")
        }
        #expect(!message.contains("test 3 does not end"))
    }

    @Test("One that awaits, without a thread, ends the process as well")
    func neverResumed() async throws {
        let result = await #expect(processExitsWith: .signal(SIGABRT), observing: [\.standardErrorContent]) {
            await awaitForEver()
        }
        let message = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(message.contains("Never ended: a test does not end: it awaits"), "\(message)")
    }

    @Test("Ended by SIGTERM, the process says which tests ran, and ends by it")
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

// In processes of their own.

private func stayStuck() async {
    signal(SIGTRAP, SIG_DFL)  // without a backtrace
    RunningTests.has(RunningTests.Programs(end: { say("programs ended") }))
    await withTaskGroup(of: Void.self) { group in
        for number in 1...3 {
            group.addTask {
                let name = "test \(number)"
                try? await RunningTest(name, limits: quick).run {
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
    signal(SIGABRT, SIG_DFL)
    try? await RunningTest("a test", limits: quick).run {
        await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
    } _: { _ in
    }
}

private func beTerminated() async {
    RunningTests.has(RunningTests.Programs(end: { say("programs ended") }))
    try? await RunningTest("a test", limits: .standard).run {
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
