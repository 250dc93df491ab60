// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT

/// The subscriptions of one connection that the broker has not granted fully. ``BrokerLink`` reports them in the log
/// and the status. It does no input and output.
struct Grants {
    /// The filters of each unanswered packet.
    private var asked: [PacketID: [String]] = [:]
    /// The refused filters, with the reasons.
    private var refused: [String: ReasonCode] = [:]
    /// The filters that were granted with quality of service 0, so that messages arrive at most once.
    private var weak: Set<String> = []

    /// Begins a new connection.
    mutating func begin() { self = Grants() }

    /// Notes a subscription that was sent.
    mutating func asked(_ filters: [TopicFilter], _ id: PacketID) {
        // Queries request quality of service 0. A packet with such a filter is not recorded.
        asked[id] = filters.filter { $0.quality != .atMostOnce }.map(\.topic)
        if asked[id]?.count != filters.count { asked[id] = nil }
    }

    /// Forgets filters that are not subscribed to any more.
    mutating func gaveUp(_ topics: [String]) {
        for topic in topics {
            refused[topic] = nil
            weak.remove(topic)
        }
    }

    /// Notes the broker's answer to a subscription.
    ///
    /// - Returns: the reason that the log should contain; nil if all was granted, or if the reason is the same as
    ///   before.
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

    /// Returns the reason why the broker does not deliver or retain all messages, for people; nil if there is none.
    ///
    /// - Parameter limits: the limits that the broker announced; nil to leave them out.
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
