/// The bounds of what goes to a client together (F1): as much as a window has (``FlowWindow``), so that a batch costs one
/// that reads no more at a time than what goes alone, and the urgent never waits behind more than that.
struct Batch {
    static let mostCount = FlowWindow.messages
    static let mostBytes = FlowWindow.bytes

    private(set) var deliveries: [Delivery] = []
    /// As the limits of queues count it.
    private(set) var byteCount = 0
    /// Of the notifications with their observers, as the bus's limit of a message counts it.
    private(set) var carriedBytes = 0

    /// Whether one more goes along; the first always does.
    func takes(_ entry: DueQueue.Entry, mostCarried: Int) -> Bool {
        deliveries.isEmpty
            || deliveries.count < Self.mostCount && byteCount + entry.byteCount <= Self.mostBytes
                && carriedBytes + entry.carriedBytes < mostCarried
    }

    mutating func append(_ delivery: Delivery, _ entry: DueQueue.Entry) {
        deliveries.append(delivery)
        byteCount += entry.byteCount
        carriedBytes += entry.carriedBytes
    }
}
