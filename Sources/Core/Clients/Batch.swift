// SPDX-License-Identifier: Apache-2.0
/// The notifications that go to a client in one message, for a client with the option `batches` (F1). The send schedule
/// fills it with the due notifications of one lane.
///
/// A batch counts as one message in the client's window (``FlowWindow``), with all of its bytes. Its size is limited to
/// the bytes that the window has left. Its number of notifications is limited to 64, so that an urgent notification
/// does not wait for long behind it.
struct Batch {
    /// The maximum number of notifications.
    static let maxCount = FlowWindow.messages

    private let maxBytes: Int
    /// The notifications in their order, with their sequence numbers.
    private(set) var deliveries: [Delivery] = []
    /// The size by which the notifications count in the window and in the limits of queues, in bytes.
    private(set) var byteCount = 0
    /// The size by which the notifications with their observers count in the maximum size of a bus message, in bytes.
    private(set) var carriedBytes = 0

    /// - Parameter maxBytes: the maximum of ``byteCount``.
    init(maxBytes: Int) { self.maxBytes = maxBytes }

    /// Whether a notification of this size fits into the window; always true for the first notification.
    func fitsWindow(for byteCount: Int) -> Bool { deliveries.isEmpty || self.byteCount + byteCount <= maxBytes }

    /// Whether the batch has capacity for one more notification; always true for the first one.
    ///
    /// - Parameter maxCarried: the limit of ``carriedBytes``, which the batch stays below.
    func takes(_ entry: DueQueue.Entry, maxCarried: Int) -> Bool {
        deliveries.isEmpty
            || deliveries.count < Self.maxCount && fitsWindow(for: entry.byteCount)
                && carriedBytes + entry.carriedBytes < maxCarried
    }

    /// Adds a notification for which ``takes(_:maxCarried:)`` is true.
    mutating func append(_ delivery: Delivery, _ entry: DueQueue.Entry) {
        deliveries.append(delivery)
        byteCount += entry.byteCount
        carriedBytes += entry.carriedBytes
    }
}
