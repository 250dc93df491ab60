// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// The receivers of recent notifications and loss reports, by message serial: for signals that the bus refuses, or
/// loses with the connection.
struct SentSignals {
    private struct Entry {
        var serial: UInt32
        var client: ClientName?
        var time: SuspendingClock.Instant
        var size: Int
        /// The numbers of notifications and losses in the signal.
        var content: Recent
    }

    /// The numbers of notifications and losses sent to one client.
    struct Recent: Equatable {
        var notifications = 0
        /// Reported losses.
        var losses: UInt64 = 0

        mutating func add(_ other: Self) {
            notifications += other.notifications
            losses += other.losses
        }
    }

    /// The number of entries: more than the bus leaves unread except in the worst case; a power of two.
    private static let capacity = 1 << 13
    /// The maximum time after which a live bus has read a sent message.
    private static let timeOnTheWay = Duration.seconds(5)

    private var entries: [Entry] = []

    /// Records a sent signal.
    ///
    /// - Parameters:
    ///   - size: the size in bytes, approximately.
    ///   - content: the numbers of notifications and losses in it.
    ///   - now: the present.
    mutating func note(
        _ serial: UInt32, to client: ClientName, size: Int, _ content: Recent, at now: SuspendingClock.Instant
    ) {
        let entry = Entry(serial: serial, client: client, time: now, size: size, content: content)
        let place = Int(serial) & (Self.capacity - 1)
        // The array grows with the first entries, which come in order.
        while entries.count <= place { entries.append(entry) }
        entries[place] = entry
    }

    /// Removes and returns the receiver of a signal and its content; nil when it was sent too long ago, or was taken
    /// before.
    mutating func take(_ serial: UInt32) -> (client: ClientName, content: Recent)? {
        let place = Int(serial) & (Self.capacity - 1)
        guard place < entries.count, entries[place].serial == serial, let client = entries[place].client else {
            return nil
        }
        entries[place].client = nil
        return (client, entries[place].content)
    }

    /// Returns the content sent to each client so recently that the bus may not have read it, and the size of the
    /// largest notification.
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
