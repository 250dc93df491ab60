// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation
import MainLoop

/// Making sure that posts have left.
extension DistributedNotificationCenter {
    /// Waits until the service has taken everything that was posted so far.
    ///
    /// For programs that end right after posting. A normal end of the process, through `exit` or by returning from
    /// `main`, does the same for ``default()``, for two seconds at most; `_exit`, a signal and a crash do not.
    ///
    /// - Parameter timeout: in seconds.
    /// - Returns: false when it did not in time, or when there is no service or no bus.
    @discardableResult
    public func flush(timeout: TimeInterval) -> Bool {
        guard !link.isUnused else { return true }
        let posted = statistics.posted
        let answer = Answer()
        submit(.barrier { answer.set($0) })
        guard answer.wait(seconds: timeout) == true else { return false }
        noteFlushed(posted)
        return true
    }

    /// Waits until the service has taken everything that was posted so far.
    ///
    /// - Returns: false when there is no service or no bus.
    @discardableResult
    public func flush() async -> Bool {
        guard !link.isUnused else { return true }
        let posted = statistics.posted
        let isFlushed = await withCheckedContinuation { continuation in
            submit(.barrier { continuation.resume(returning: $0) })
        }
        if isFlushed { noteFlushed(posted) }
        return isFlushed
    }

    private func noteFlushed(_ posted: UInt64) {
        state.withLock { $0.flushed = max($0.flushed, posted) }
    }

    func flushAtExit() {
        if state.withLock({ $0.statistics.posted > $0.flushed }) { flush(timeout: 2) }
    }
}

/// One value from another thread.
private final class Answer: Sendable {
    private let value = Locked<Bool?>(nil)
    private let isThere = DispatchSemaphore(value: 0)

    func set(_ value: Bool) {
        self.value.withLock { $0 = value }
        isThere.signal()
    }

    func wait(seconds: TimeInterval) -> Bool? {
        _ = isThere.wait(timeout: .now() + seconds)
        return value.withLock { $0 }
    }
}
