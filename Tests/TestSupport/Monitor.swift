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
    /// - Returns: that value, or nil when the patience was at its end first.
    func wait<Result>(_ patience: Patience, for body: (inout State) throws -> Result?) rethrows -> Result? {
        condition.lock()
        defer { condition.unlock() }
        var wait = Wait(patience)
        while true {
            if let result = try body(&state) {
                return result
            }
            if wait.end() != nil {
                return nil
            }
            _ = condition.wait(until: Date(timeIntervalSinceNow: wait.pause.timeInterval))
        }
    }

    /// Blocks until `body` returns a value, however long that takes.
    func wait<Result>(for body: (inout State) throws -> Result?) rethrows -> Result {
        condition.lock()
        defer { condition.unlock() }
        while true {
            if let result = try body(&state) {
                return result
            }
            condition.wait()
        }
    }
}
