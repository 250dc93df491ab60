// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Connections that are not on the bus any more and have left values behind, by how much that is (E4).
///
/// Nobody can use up for good what there is for all by coming and going: where there is no room for a value, those of the
/// connection that left most behind give way, the oldest first, and of several the one that left first.
struct DepartedPayers {
    /// One of them.
    struct Entry: Comparable {
        let byteCount: Int
        let count: Int
        /// In which they left.
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

    /// Whose values give way first.
    var largest: ClientName? { entries.last?.name }

    /// Notes what a connection that is not there has left behind now.
    ///
    /// - Parameter before: what it had before, which is the result of the last call; nil for none.
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

    /// How much of a resource they use.
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
