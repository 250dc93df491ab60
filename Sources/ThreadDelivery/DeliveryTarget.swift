// SPDX-License-Identifier: Apache-2.0
/// The destination of an observer's notifications: a thread, a main context or an operation queue. Each kind of
/// destination is a type that conforms.
package protocol DeliveryTarget: Sendable {
    /// Runs `work` at the destination, after all earlier work. Returns at once.
    ///
    /// - Parameter byteCount: the approximate memory that `work` keeps, in bytes.
    /// - Returns: the number of entries that this call discarded because the target's queue is full (T2).
    func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int
}

/// A target that runs work immediately on the calling thread. It is for work that only puts the notification into
/// another buffer, such as that of an asynchronous sequence.
package struct DirectTarget: DeliveryTarget {
    package init() {}

    package func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        work()
        return 0
    }
}
