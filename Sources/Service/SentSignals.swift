// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// A ring buffer of the last signals that were sent on the bus: receiver and content by message serial.
///
/// ``EffectRunner`` uses it in two cases. When the bus refuses a signal, its error names only the serial, and the
/// buffer tells whose notifications are lost. When the bus closes the connection, the signals of the last seconds may
/// be lost.
struct SentSignals {
    private struct Entry {
        var serial: UInt32
        /// The receiver; nil if the bus has refused the signal.
        var client: ClientName?
        /// The time of sending.
        var time: SuspendingClock.Instant
        /// The approximate size in bytes; 0 for a control signal.
        var size: Int
        /// The numbers of notifications and losses in the signal.
        var content: SignalContent
    }

    /// The numbers of notifications, and of losses reported by Dropped, in one signal or in several to one client.
    struct SignalContent: Equatable {
        var notifications = 0
        var losses: UInt64 = 0

        mutating func add(_ other: Self) {
            notifications += other.notifications
            losses += other.losses
        }
    }

    /// The number of entries, a power of two. The bus rarely has more unread messages of the service.
    private static let capacity = 1 << 13
    /// The time after which a running bus is assumed to have read a sent message.
    private static let maxTimeInFlight = Duration.seconds(5)

    private var entries: [Entry] = []

    /// Records a sent signal.
    ///
    /// - Parameters:
    ///   - size: the approximate size in bytes; 0 for a control signal.
    ///   - content: the numbers of notifications and losses in it.
    ///   - now: the present.
    mutating func note(
        _ serial: UInt32, to client: ClientName, size: Int, _ content: SignalContent, at now: SuspendingClock.Instant
    ) {
        let entry = Entry(serial: serial, client: client, time: now, size: size, content: content)
        let place = Int(serial) & (Self.capacity - 1)
        // The array grows up to its capacity, because most services send few signals.
        while entries.count <= place { entries.append(entry) }
        entries[place] = entry
    }

    /// Removes and returns the receiver of a refused signal and its content; nil if the entry was overwritten by a
    /// newer one, or was removed before.
    mutating func take(_ serial: UInt32) -> (client: ClientName, content: SignalContent)? {
        let place = Int(serial) & (Self.capacity - 1)
        guard place < entries.count, entries[place].serial == serial, let client = entries[place].client else {
            return nil
        }
        entries[place].client = nil
        return (client, entries[place].content)
    }

    /// Returns the content that was sent to each client in the last ``maxTimeInFlight``, and the size of the largest of
    /// these signals in bytes.
    func recent(at now: SuspendingClock.Instant) -> (counts: [ClientName: SignalContent], largest: Int) {
        let earliest = now - Self.maxTimeInFlight
        var (counts, largest): ([ClientName: SignalContent], Int) = ([:], 0)
        for entry in entries where entry.time > earliest {
            guard let client = entry.client else { continue }
            counts[client, default: SignalContent()].add(entry.content)
            largest = max(largest, entry.size)
        }
        return (counts, largest)
    }
}
