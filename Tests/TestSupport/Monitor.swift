// SPDX-License-Identifier: Apache-2.0
import Foundation

/// State behind a lock, with threads that can wait for it to change.
///
/// Unchecked because the compiler can't see that `state` is touched only while `condition` is locked.
final class Monitor<State: Sendable>: @unchecked Sendable {
    private let condition = NSCondition()
    private var state: State

    init(_ state: State) {
        self.state = state
    }

    /// Runs `body` with the state locked, and wakes everyone who waits for a change of it.
    @discardableResult
    func update<Result>(_ body: (inout State) throws -> Result) rethrows -> Result {
        condition.lock()
        defer {
            condition.broadcast()
            condition.unlock()
        }
        return try body(&state)
    }

    /// Blocks until `body` returns a value, which it is asked for now and after every update.
    ///
    /// - Returns: that value, or nil when `deadline` was reached first.
    func wait<Result>(until deadline: Deadline, for body: (inout State) throws -> Result?) rethrows -> Result? {
        condition.lock()
        defer { condition.unlock() }
        while true {
            if let result = try body(&state) {
                return result
            }
            if deadline.hasPassed {
                return nil
            }
            _ = condition.wait(until: Date(timeIntervalSinceNow: deadline.remaining.timeInterval))
        }
    }
}
