// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The connections that have left the bus and left retained values behind, in the order of the size of these values
/// (E4).
///
/// Where there is no space for a new value, the values of the connection that left most behind are removed, the oldest
/// first. Of several such connections, the first to leave comes first. Connections that come and go thus cannot use up
/// the shared capacity for good.
struct DepartedPayers {
    /// A departed connection and the size of its values.
    struct Entry: Comparable {
        let byteCount: Int
        let count: Int
        /// The order in which the connections left.
        let order: UInt64
        let name: ClientName

        static func < (left: Entry, right: Entry) -> Bool {
            (left.byteCount, right.order) < (right.byteCount, left.order)
        }

        static func == (left: Entry, right: Entry) -> Bool {
            left.order == right.order && left.byteCount == right.byteCount
        }
    }

    private var entries = SortedSet<Entry>()
    private var lastOrder: UInt64 = 0
    private(set) var count = 0
    private(set) var byteCount = 0

    /// The connection whose values are removed first.
    var largest: ClientName? { entries.last?.name }

    /// Updates the values that a departed connection has left behind.
    ///
    /// - Parameter before: the result of the last call for this connection; nil for none.
    /// - Returns: nil for a present connection, and for one without values.
    mutating func note(_ peer: Peer, _ before: Entry?) -> Entry? {
        if let before {
            entries.remove(before)
            count -= before.count
            byteCount -= before.byteCount
        }
        guard !peer.isKnown, peer.usage[.retainedBytes] > 0 else { return nil }
        if before == nil { lastOrder += 1 }
        let entry = Entry(
            byteCount: peer.usage[.retainedBytes], count: peer.usage[.retained], order: before?.order ?? lastOrder,
            name: peer.name)
        entries.insert(entry)
        count += entry.count
        byteCount += entry.byteCount
        return entry
    }

    /// The usage of a resource by all departed connections.
    func usage(_ resource: Resource) -> Int {
        switch resource {
        case .retained: count
        case .retainedBytes: byteCount
        default: 0
        }
    }

    func checkInvariants(_ payers: some Sequence<Peer>) throws(BrokenInvariant) {
        var (all, sum) = (0, (count: 0, byteCount: 0))
        for peer in payers where !peer.isKnown && peer.usage[.retainedBytes] > 0 {
            all += 1
            sum.count += peer.usage[.retained]
            sum.byteCount += peer.usage[.retainedBytes]
            try require(
                peer.departed.map { $0.byteCount == peer.usage[.retainedBytes] } ?? false, "E4: \(peer.name) gives way")
        }
        try require(
            all == entries.count && sum == (count, byteCount), "E4: what was left behind is the sum of what each left")
    }
}
