// SPDX-License-Identifier: Apache-2.0

/// The subscriptions of a ``ClientDriver`` that the broker has not answered completely. One call may need several
/// packets: libmosquitto gives all filters of a packet the same quality of service, options and identifier, although
/// MQTT has options for each filter. The delegate receives one result with the answers to all packets.
struct PendingSubscriptions {
    /// A subscription that waits for answers.
    private final class Subscription {
        /// The identifier of its first packet, which the caller knows.
        let id: PacketID
        /// The results of the filters, in the order of the call; `unspecified` until the answer arrives.
        var reasons: [ReasonCode]
        /// The number of unanswered packets.
        var packets: Int

        init(id: PacketID, count: Int, packets: Int) {
            self.id = id
            reasons = Array(repeating: .unspecified, count: count)
            self.packets = packets
        }
    }

    /// The unanswered packets, each with its subscription, and with the indices of its filters in the call (`places`).
    private var waiting: [PacketID: (Subscription, places: [Int])] = [:]

    /// Divides filters into packets, so that all filters of a packet have the same options
    /// (``TopicFilter/hasOptions(of:)``).
    ///
    /// - Returns: the indices of the filters, one list for each packet.
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

    /// Registers the packets of a subscription, whose answers are to come.
    ///
    /// - Parameter packets: the packets, with the indices of the filters in each. The first packet's identifier is that
    ///   of the subscription.
    mutating func wait(for packets: [(PacketID, places: [Int])]) {
        guard let first = packets.first else { return }
        let count = packets.reduce(0) { $0 + $1.places.count }
        let subscription = Subscription(id: first.0, count: count, packets: packets.count)
        for (id, places) in packets { waiting[id] = (subscription, places) }
    }

    /// Processes the answer to a packet.
    ///
    /// - Returns: the results of all filters, if this is the last answer to the subscription; nil otherwise.
    mutating func answer(_ id: PacketID, _ answers: [ReasonCode]) -> (PacketID, [ReasonCode])? {
        guard let (subscription, places) = waiting.removeValue(forKey: id) else { return nil }
        for (place, reason) in zip(places, answers) { subscription.reasons[place] = reason }
        subscription.packets -= 1
        return subscription.packets == 0 ? (subscription.id, subscription.reasons) : nil
    }

    /// Forgets all, because the connection has ended.
    mutating func removeAll() { waiting = [:] }
}
