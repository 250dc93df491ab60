// SPDX-License-Identifier: Apache-2.0
/// Where observers run.
package protocol DeliveryTarget: Sendable {
    /// Has `work` run there, after everything before. Returns at once.
    ///
    /// - Returns: how many of the oldest were lost because nothing ran there in time (T2).
    func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int
}

/// At once on the calling thread: for what only hands on, such as a sequence's buffer.
package struct DirectTarget: DeliveryTarget {
    package init() {}

    package func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        work()
        return 0
    }
}
