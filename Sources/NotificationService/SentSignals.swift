import NotificationCore

/// To whom the last notifications went, by the serials of their messages: for what the bus refuses, or loses with the
/// connection.
struct SentSignals {
    private struct Entry {
        var serial: UInt32
        var client: ClientName?
        var time: SuspendingClock.Instant
        var size: Int
    }

    /// More than the bus leaves unread in any but the worst case; a power of two.
    private static let capacity = 1 << 13
    /// A bus that lives has read by then what was sent.
    private static let timeOnTheWay = Duration.seconds(5)

    private var entries: [Entry] = []

    /// - Parameter size: in bytes, about.
    mutating func note(_ serial: UInt32, to client: ClientName, size: Int) {
        let entry = Entry(serial: serial, client: client, time: .now, size: size)
        let place = Int(serial) & (Self.capacity - 1)
        // Grows with the first ones, which come in order.
        while entries.count <= place { entries.append(entry) }
        entries[place] = entry
    }

    /// The client that was sent this; nil when that is long ago, or was asked before.
    mutating func takeClient(of serial: UInt32) -> ClientName? {
        let place = Int(serial) & (Self.capacity - 1)
        guard place < entries.count, entries[place].serial == serial else { return nil }
        defer { entries[place].client = nil }
        return entries[place].client
    }

    /// How many went to each client so lately that the bus may not have read them yet, and the size of the largest.
    func recent() -> (counts: [ClientName: Int], largest: Int) {
        let earliest = SuspendingClock.now - Self.timeOnTheWay
        var (counts, largest): ([ClientName: Int], Int) = ([:], 0)
        for entry in entries where entry.time > earliest {
            guard let client = entry.client else { continue }
            counts[client, default: 0] += 1
            largest = max(largest, entry.size)
        }
        return (counts, largest)
    }
}
