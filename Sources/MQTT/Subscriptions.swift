// SPDX-License-Identifier: Apache-2.0

/// The subscriptions that wait for an answer. A subscription may take several packets, because all filters of a packet
/// have the same options.
struct Subscriptions {
    private final class Subscription {
        let id: PacketID
        var reasons: [ReasonCode]
        var packets: Int

        init(id: PacketID, count: Int, packets: Int) {
            self.id = id
            reasons = Array(repeating: .unspecified, count: count)
            self.packets = packets
        }
    }

    private var waiting: [PacketID: (Subscription, places: [Int])] = [:]

    /// Returns the indices of filters, grouped by the packets that they fit into.
    static func packets(of filters: [TopicFilter]) -> [[Int]] {
        var groups: [[Int]] = []
        for (index, filter) in filters.enumerated() {
            if let group = groups.firstIndex(where: { filters[$0[0]].hasOptions(of: filter) }) {
                groups[group].append(index)
            } else {
                groups.append([index])
            }
        }
        return groups
    }

    /// Waits for the answers to packets.
    ///
    /// - Parameter packets: the packets, with the indices of the filters in each; the first packet's identifier is that
    ///   of the subscription.
    mutating func wait(for packets: [(PacketID, places: [Int])]) {
        guard let first = packets.first else { return }
        let count = packets.reduce(0) { $0 + $1.places.count }
        let subscription = Subscription(id: first.0, count: count, packets: packets.count)
        for (id, places) in packets { waiting[id] = (subscription, places) }
    }

    /// Processes the answer to a packet.
    ///
    /// - Returns: all answers to the subscription, if this is the last one; nil otherwise.
    mutating func answer(_ id: PacketID, _ answers: [ReasonCode]) -> (PacketID, [ReasonCode])? {
        guard let (subscription, places) = waiting.removeValue(forKey: id) else { return nil }
        for (place, reason) in zip(places, answers) { subscription.reasons[place] = reason }
        subscription.packets -= 1
        return subscription.packets == 0 ? (subscription.id, subscription.reasons) : nil
    }

    mutating func removeAll() { waiting = [:] }
}
