// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT

/// The answers of the broker to subscriptions on a connection. No input and output.
struct Grants {
    private var asked: [PacketID: [String]] = [:]
    private var refused: [String: ReasonCode] = [:]
    /// Filters whose messages come at most once.
    private var weak: Set<String> = []

    /// There is a new connection.
    mutating func begin() { self = Grants() }

    /// Something was asked for.
    mutating func asked(_ filters: [TopicFilter], _ id: PacketID) {
        // Of the bridge's own values nothing is lost for good.
        asked[id] = filters.filter { $0.quality != .atMostOnce }.map(\.topic)
        if asked[id]?.count != filters.count { asked[id] = nil }
    }

    /// Nothing is asked for on these topics any more.
    mutating func gaveUp(_ topics: [String]) {
        for topic in topics {
            refused[topic] = nil
            weak.remove(topic)
        }
    }

    /// The broker has answered.
    ///
    /// - Returns: what is to be said of it; nil where all was granted, or that was known.
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

    /// Why not all that comes is taken, or that goes is kept; nil for no reason.
    ///
    /// - Parameter limits: what the broker said when it took the connection.
    func reason(_ limits: BrokerLimits?) -> String? {
        if let (topic, reason) = refused.min(by: { $0.key < $1.key }) {
            let others = refused.count == 1 ? "" : " and \(refused.count - 1) more"
            return "the broker refused the subscription to \(topic)\(others): \(reason); look at its access list"
        }
        if limits?.maximumQuality == .atMostOnce || !weak.isEmpty {
            return "the broker takes or sends messages at most once: what is lost on the way is not sent again"
        }
        if limits?.retainAvailable == false { return "the broker keeps no values" }
        return nil
    }
}
