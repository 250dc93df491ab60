// SPDX-License-Identifier: Apache-2.0
import Testing

/// The limit of every suite: a test of which nothing comes any more fails with its name, whether it blocks, turns in a loop or
/// awaits what does not come, and the others go on.
///
/// `.timeLimit` counts also the time in which other tests hold the threads of the pool, which can be minutes, and can't
/// interrupt a test that never awaits. Tests of this trait have threads of their own.
public struct LimitedTrait: SuiteTrait, TestTrait, TestScoping {
    public var isRecursive: Bool { true }

    public func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        // It may be that of a suite and of one in it.
        guard testCase != nil, RunningTest.current == nil else { return try await function() }
        let location = test.sourceLocation
        let name = "\(test.displayName.map { "\"\($0)\" " } ?? "")(\(location.fileID):\(location.line), \(test.name))"
        try await RunningTest(name, limits: .standard).run(function) { why in
            Issue.record(Stuck(description: "It \(why).\(RunningTests.report())"), sourceLocation: location)
        }
    }

    private struct Stuck: Error, CustomStringConvertible {
        let description: String
    }
}

extension Trait where Self == LimitedTrait {
    /// Each test may take a minute in which nothing comes of it: see ``RunningTest/Limits``.
    public static var limited: Self { LimitedTrait() }
}

extension RunningTest {
    /// Runs a test, or what is one for a test of this.
    ///
    /// - Parameters:
    ///   - function: is cancelled where it takes too long.
    ///   - record: is told then why.
    func run(
        _ function: @Sendable () async throws -> Void, _ record: @escaping @Sendable (String) -> Void
    ) async throws {
        await RunningTests.begin(self)
        defer { RunningTests.end(self) }
        let threads = OwnThreads(of: self)
        defer { withExtendedLifetime(threads) {} }
        try await RunningTest.$current.withValue(self) {
            try await withoutActuallyEscaping(function) { function in
                try await withThrowingTaskGroup(of: String?.self) { group in
                    group.addTask(executorPreference: threads) {
                        defer { self.ended() }
                        try await function()
                        return nil
                    }
                    group.addTask(executorPreference: OwnThreads.shared) { await self.watch() }
                    // The first is the one that ended, or the one that had enough.
                    let why = try await group.next() ?? nil
                    if let why { record(why) }
                    group.cancelAll()
                    if let why {
                        group.addTask(executorPreference: OwnThreads.shared) {
                            self.waitForEnd { RunningTests.isStuck(self, why) }
                            return nil
                        }
                    }
                    try await group.waitForAll()
                }
            }
        }
    }

    /// Returns when it is cancelled, or why the test takes too long.
    private func watch() async -> String? {
        while !Task.isCancelled {
            do { try await PoolOfTasks.pass() } catch { return "\(error)" }
            if let why = look() { return why }
            try? await Task.sleep(for: .milliseconds(200))
        }
        return nil
    }
}
