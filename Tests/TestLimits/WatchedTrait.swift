// SPDX-License-Identifier: Apache-2.0
import Testing

/// The limit of suites whose tests are synchronous: a test that does not end fails with its name, and ends the process.
/// `.timeLimit` can't interrupt one that never waits.
public struct WatchedTrait: SuiteTrait, TestTrait, TestScoping {
    public var isRecursive: Bool { true }

    public func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        let name = "\(test.displayName ?? "a test") (\(test.sourceLocation.fileName), \(test.name))"
        try await Watchdog.watchTest(name) { try await function() }
    }
}

extension Trait where Self == WatchedTrait {
    /// Each test may take ``Watchdog/seconds`` of processor time. For tests that stay on one thread.
    public static var watched: Self { WatchedTrait() }
}
