// SPDX-License-Identifier: Apache-2.0
/// The place where observers run: a thread, a context or a queue.
package protocol DeliveryTarget: Sendable {
    /// Runs `work` there, after all earlier work. Returns at once.
    ///
    /// - Returns: the number of entries, the oldest first, that were lost because they did not run in time (T2).
    func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int
}

/// A target that runs work at once on the calling thread, for work that only passes a notification on, such as a
/// sequence's buffer.
package struct DirectTarget: DeliveryTarget {
    package init() {}

    package func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        work()
        return 0
    }
}
