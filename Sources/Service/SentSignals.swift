// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// To whom the last notifications and words about losses went, by the serials of their messages: for what the bus
/// refuses, or loses with the connection.
struct SentSignals {
    private struct Entry {
        var serial: UInt32
        var client: ClientName?
        var time: SuspendingClock.Instant
        var size: Int
        /// How many were in it, or it told of.
        var content: Recent
    }

    /// What went to one client.
    struct Recent: Equatable {
        var notifications = 0
        /// Losses that it was told of.
        var losses: UInt64 = 0

        mutating func add(_ other: Self) {
            notifications += other.notifications
            losses += other.losses
        }
    }

    /// More than the bus leaves unread in any but the worst case; a power of two.
    private static let capacity = 1 << 13
    /// A bus that lives has read by then what was sent.
    private static let timeOnTheWay = Duration.seconds(5)

    private var entries: [Entry] = []

    /// - Parameters:
    ///   - size: in bytes, about.
    ///   - content: how many are in it, or it tells of.
    ///   - now: the present.
    mutating func note(
        _ serial: UInt32, to client: ClientName, size: Int, _ content: Recent, at now: SuspendingClock.Instant
    ) {
        let entry = Entry(serial: serial, client: client, time: now, size: size, content: content)
        let place = Int(serial) & (Self.capacity - 1)
        // Grows with the first ones, which come in order.
        while entries.count <= place { entries.append(entry) }
        entries[place] = entry
    }

    /// The client that was sent this, and what was in it; nil when that is long ago, or was asked before.
    mutating func take(_ serial: UInt32) -> (client: ClientName, content: Recent)? {
        let place = Int(serial) & (Self.capacity - 1)
        guard place < entries.count, entries[place].serial == serial, let client = entries[place].client else {
            return nil
        }
        entries[place].client = nil
        return (client, entries[place].content)
    }

    /// What went to each client so lately that the bus may not have read it yet, and the size of the largest.
    func recent(at now: SuspendingClock.Instant) -> (counts: [ClientName: Recent], largest: Int) {
        let earliest = now - Self.timeOnTheWay
        var (counts, largest): ([ClientName: Recent], Int) = ([:], 0)
        for entry in entries where entry.time > earliest {
            guard let client = entry.client else { continue }
            counts[client, default: Recent()].add(entry.content)
            largest = max(largest, entry.size)
        }
        return (counts, largest)
    }
}
