// SPDX-License-Identifier: Apache-2.0
import Testing

/// The limit of suites whose tests await something that has no bound of its own, as the next element of a sequence: a test
/// that waits in vain fails after a minute and a half, and says what its programs wrote.
///
/// `.timeLimit` counts also the time in which other tests hold the threads of the pool, which can be minutes. These tests
/// have threads of their own, and the time in which the pool is held does not count: what they wait for may need it.
public struct BoundedTrait: SuiteTrait, TestTrait, TestScoping {
    public var isRecursive: Bool { true }

    public func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        try await withoutActuallyEscaping(function) { function in
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask(executorPreference: ThreadPerJob.shared) { try await function() }
                group.addTask(executorPreference: ThreadPerJob.shared) { await Self.watch(test) }
                // The first is the one that ended, or the one that had enough.
                try await group.next()
                group.cancelAll()
                try await group.waitForAll()
            }
        }
    }

    /// Returns when it is cancelled, or has recorded that the test takes too long.
    private static func watch(_ test: Test) async {
        var wait = Wait(inTask: patience)
        while !Task.isCancelled {
            var end: String?
            do { try await Wait.throughThePool() } catch { end = "\(error)" }
            if let end = end ?? wait.end() {
                let failure = NotInTime("\(end): the end of \(test.name), which is cancelled")
                Issue.record(failure, sourceLocation: test.sourceLocation)
                return
            }
            try? await Task.sleep(for: .milliseconds(100))
        }
    }

    #if THREAD_SANITIZER
        private static let patience = Patience.work(.seconds(900), because: "the thread sanitizer makes a test slow")
    #else
        private static let patience = Patience.work(.seconds(90), because: "a whole test, with all that it awaits")
    #endif
}

extension Trait where Self == BoundedTrait {
    /// Each test may take a minute and a half in which it could go on.
    public static var bounded: Self { BoundedTrait() }
}
