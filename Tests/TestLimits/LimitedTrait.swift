// SPDX-License-Identifier: Apache-2.0
import Testing

/// The limit of every suite: a test that hangs fails with its name, whether it blocks, loops or awaits what does not come,
/// and the others go on.
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
        try await RunningTest(name, limits: .standard).run(among: .shared, function) { why in
            Issue.record(Hangs(description: "It \(why).\(RunningTests.report())"), sourceLocation: location)
        }
    }

    private struct Hangs: Error, CustomStringConvertible {
        let description: String
    }
}

extension Trait where Self == LimitedTrait {
    /// Each test may take a minute without progress: see ``RunningTest/Limits``.
    public static var limited: Self { LimitedTrait() }
}

extension RunningTest {
    private enum Event: Sendable {
        case ended
        case hangs(String)
        /// Somebody else cancelled it: most often the test itself, as it can't run here.
        case cancelled
    }

    /// Runs a test, or what is one for a test of this.
    ///
    /// - Parameters:
    ///   - tests: have a place for it, sooner or later.
    ///   - function: is cancelled where it hangs.
    ///   - record: is told then why.
    func run(
        among tests: RunningTests, _ function: @Sendable () async throws -> Void,
        _ record: @escaping @Sendable (String) -> Void
    ) async throws {
        await tests.begin(self)
        defer { tests.end(self) }
        let threads = OwnThreads(of: self)
        defer { withExtendedLifetime(threads) {} }
        // What watches it has threads of its own, too: others may hold all those of the pool.
        try await withTaskExecutorPreference(OwnThreads.shared) {
            try await RunningTest.$current.withValue(self) {
                try await withoutActuallyEscaping(function) { function in
                    try await withThrowingTaskGroup(of: Event.self) { group in
                        group.addTask(executorPreference: threads) {
                            defer { self.ended() }
                            try await function()
                            return .ended
                        }
                        group.addTask { await self.watch() }
                        let event = try await group.next()
                        if case .hangs(let why) = event { record(why) }
                        group.cancelAll()
                        group.addTask {
                            let why = if case .hangs(let why) = event { why } else { "was cancelled, and goes on" }
                            self.waitForEnd { tests.hangs(self, why) }
                            return .ended
                        }
                        try await group.waitForAll()
                    }
                }
            }
        }
    }

    /// Returns when the test hangs, or is cancelled.
    private func watch() async -> Event {
        while !Task.isCancelled {
            if let why = look() { return .hangs(why) }
            try? await Task.sleep(for: .milliseconds(200))
        }
        return .cancelled
    }
}
