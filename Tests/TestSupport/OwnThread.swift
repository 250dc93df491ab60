// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits

/// Runs work that blocks for long on a thread of its own.
///
/// Each test has threads of its own. One more of them is for work beside the test, and for a thread that shall be over then.
///
/// - Parameters:
///   - patience: what waits in `body` has bounds of its own; this is for what blocks without one.
/// - Returns: what `body` returned.
/// - Throws: what `body` threw; ``NotInTime`` when it goes on, and then its thread does too.
public func onOwnThread<Result: Sendable>(
    within patience: Patience = .work(.seconds(600), because: "a thread of its own, with all that a test does on it"),
    _ body: @escaping @Sendable () throws -> Result
) async throws -> Result {
    let owner = ProgramsUnderTest.owner
    return try await awaiting("the end of a thread", within: patience) {
        // A task of one job, and not a plain thread: a failed expectation is one of the test that is current in it.
        try await Task(executorPreference: OwnThreads.current) {
            ProgramsUnderTest.adopt(owner)
            return try body()
        }.value
    }
}
