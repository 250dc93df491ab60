// SPDX-License-Identifier: Apache-2.0
/// The notifications that go to a client in one message (F1), with their bounds. A batch has no more bytes than fit
/// into the client's window (``FlowWindow``), where it counts as one message. It has no more notifications than a
/// window has messages, so that urgent notifications do not wait for long.
struct Batch {
    static let maxCount = FlowWindow.messages

    private let maxBytes: Int
    private(set) var deliveries: [Delivery] = []
    /// The size as the limits of queues count it, in bytes.
    private(set) var byteCount = 0
    /// The size of the notifications with their observers as the bus's limit for a message counts it, in bytes.
    private(set) var carriedBytes = 0

    /// - Parameter maxBytes: the maximum of ``byteCount``.
    init(maxBytes: Int) { self.maxBytes = maxBytes }

    /// Whether so many more bytes fit; always true for the first notification.
    func hasRoom(for byteCount: Int) -> Bool { deliveries.isEmpty || self.byteCount + byteCount <= maxBytes }

    /// Whether the batch takes one more notification; it always takes the first.
    func takes(_ entry: DueQueue.Entry, maxCarried: Int) -> Bool {
        deliveries.isEmpty
            || deliveries.count < Self.maxCount && hasRoom(for: entry.byteCount)
                && carriedBytes + entry.carriedBytes < maxCarried
    }

    mutating func append(_ delivery: Delivery, _ entry: DueQueue.Entry) {
        deliveries.append(delivery)
        byteCount += entry.byteCount
        carriedBytes += entry.carriedBytes
    }
}
