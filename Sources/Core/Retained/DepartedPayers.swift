// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The connections that have left the bus and left retained values behind (E4): a set ordered by the size of these
/// values.
///
/// When a new value finds no space, values of the connection that left most behind are removed, the oldest value first.
/// Of connections with the same size, the first to leave comes first. Thus connections that come and go can't use up
/// the shared capacity for good. The center updates an entry after each change (`+Accounting` in
/// ``DistributedCenter``).
struct DepartedPayers {
    /// A departed connection and the size of its values.
    struct Entry: Comparable {
        /// The size of its values, in bytes.
        let byteCount: Int
        /// The number of its values.
        let count: Int
        /// The number of the departure, in the order in which the connections left.
        let order: UInt64
        let name: ClientName

        /// The order: by size. Among equal sizes the earlier departure is greater, so that it is removed first.
        static func < (left: Entry, right: Entry) -> Bool {
            (left.byteCount, right.order) < (right.byteCount, left.order)
        }

        static func == (left: Entry, right: Entry) -> Bool {
            left.order == right.order && left.byteCount == right.byteCount
        }
    }

    private var entries = SortedSet<Entry>()
    private var lastOrder: UInt64 = 0
    /// The number of values of all departed connections.
    private(set) var count = 0
    /// Their size, in bytes.
    private(set) var byteCount = 0

    /// The connection whose values are removed first.
    var largest: ClientName? { entries.last?.name }

    /// Updates the entry of a connection after it left or returned, or after a change of its values.
    ///
    /// - Parameter before: its present entry, which the last call returned; nil for none.
    /// - Returns: its new entry; nil for a connection that is still there, and for one without values.
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

    /// The usage of a resource by the values of all departed connections; 0 for resources that values do not use.
    func usage(_ resource: Resource) -> Int {
        switch resource {
        case .retained: count
        case .retainedBytes: byteCount
        default: 0
        }
    }

    /// Checks the entries and sums.
    ///
    /// - Parameter payers: all connections that are charged for something.
    func checkInvariants(_ payers: some Sequence<Peer>) throws(BrokenInvariant) {
        var (all, sum) = (0, (count: 0, byteCount: 0))
        for peer in payers where !peer.isKnown && peer.usage[.retainedBytes] > 0 {
            all += 1
            sum.count += peer.usage[.retained]
            sum.byteCount += peer.usage[.retainedBytes]
            try require(
                peer.departed.map { $0.byteCount == peer.usage[.retainedBytes] } ?? false,
                "E4: \(peer.name) has an entry with the size of its values")
        }
        try require(
            all == entries.count && sum == (count, byteCount),
            "E4: the totals of departed payers are the sums of their entries")
    }
}
