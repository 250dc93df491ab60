// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT

/// The broker's answers to the subscriptions of a connection. No input and output.
struct Grants {
    private var asked: [PacketID: [String]] = [:]
    private var refused: [String: ReasonCode] = [:]
    /// Filters whose messages arrive at most once.
    private var weak: Set<String> = []

    /// Begins a new connection.
    mutating func begin() { self = Grants() }

    /// Notes a subscription.
    mutating func asked(_ filters: [TopicFilter], _ id: PacketID) {
        // Queries, which have quality of service 0, are not recorded.
        asked[id] = filters.filter { $0.quality != .atMostOnce }.map(\.topic)
        if asked[id]?.count != filters.count { asked[id] = nil }
    }

    /// Forgets topics that are not subscribed to any more.
    mutating func gaveUp(_ topics: [String]) {
        for topic in topics {
            refused[topic] = nil
            weak.remove(topic)
        }
    }

    /// Notes the broker's answer to a subscription.
    ///
    /// - Returns: the remark on it; nil if all was granted, or if the remark is the same as before.
    mutating func answered(_ id: PacketID, _ reasons: [ReasonCode]) -> String? {
        guard let filters = asked.removeValue(forKey: id) else { return nil }
        let before = reason(nil)
        for (filter, reason) in zip(filters, reasons) {
            refused[filter] = reason.isFailure ? reason : nil
            if reason == .success { weak.insert(filter) } else { weak.remove(filter) }
        }
        let after = reason(nil)
        return after == before ? nil : after
    }

    /// Returns the reason why the broker does not deliver or retain everything; nil if there is none.
    ///
    /// - Parameter limits: the limits that the broker set when it accepted the connection.
    func reason(_ limits: BrokerLimits?) -> String? {
        if let (topic, reason) = refused.min(by: { $0.key < $1.key }) {
            let others = refused.count == 1 ? "" : " and \(refused.count - 1) more"
            return "the broker refused the subscription to \(topic)\(others): \(reason); see its access list"
        }
        if limits?.maximumQuality == .atMostOnce || !weak.isEmpty {
            return "the broker transfers messages at most once: messages lost on the way are not sent again"
        }
        if limits?.retainAvailable == false { return "the broker does not retain messages" }
        return nil
    }
}
