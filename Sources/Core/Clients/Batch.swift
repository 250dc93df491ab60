// SPDX-License-Identifier: Apache-2.0
/// The bounds of what goes to a client together (F1): no more bytes than there is room for in its window
/// (``FlowWindow``), in which a batch counts as what it is for the bus, one message; and so few notifications that the
/// urgent does not wait for long.
struct Batch {
    static let maxCount = FlowWindow.messages

    private let maxBytes: Int
    private(set) var deliveries: [Delivery] = []
    /// As the limits of queues count it.
    private(set) var byteCount = 0
    /// Of the notifications with their observers, as the bus's limit of a message counts it.
    private(set) var carriedBytes = 0

    /// - Parameter mostBytes: as ``byteCount``.
    init(maxBytes: Int) { self.maxBytes = maxBytes }

    /// Whether there is room for so many bytes more; for the first always.
    func hasRoom(for byteCount: Int) -> Bool { deliveries.isEmpty || self.byteCount + byteCount <= maxBytes }

    /// Whether one more goes along; the first always does.
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
