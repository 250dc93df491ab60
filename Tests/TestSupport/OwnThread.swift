// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Runs work that blocks for long on a thread of its own.
///
/// Tests run on as many threads as the machine has processors. A test that blocks one of them for seconds holds up
/// others that have begun already, and their time limits run.
///
/// - Returns: what `body` returned.
/// - Throws: what `body` threw.
public func onOwnThread<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result {
    try await withCheckedThrowingContinuation { continuation in
        Thread { continuation.resume(with: Swift.Result(catching: body)) }.start()
    }
}
