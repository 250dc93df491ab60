// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT

@testable import CarillonBridge

/// A broker with one session, whose packets arrive when the test says so.
final class StagedBroker: BrokerClient {
    var delegate: (any MQTTClientDelegate)?
    var isReadingPaused = false
    /// Its retained messages, by topic.
    var retained: [String: Publication] = [:]
    /// Topics whose messages it keeps from this client without a word.
    var hides: (String) -> Bool = { _ in false }
    /// Topics of subscriptions that it refuses.
    var refuses: (String) -> Bool = { _ in false }
    /// Whether retained messages come in the background: some time after the answer to the subscription.
    var isSlow = false
    /// The maximum of packets on their way; retained messages beyond that are dropped.
    var room = Int.max
    /// Whether it tells of a message by which subscriptions it comes.
    var hasIdentifiers = true
    /// Whether it answers nothing.
    var isDeaf = false
    private(set) var filters: [String: TopicFilter] = [:]
    /// All subscriptions that were asked for.
    private(set) var asked: [[TopicFilter]] = []
    private(set) var connections = 0
    private(set) var isConnected = false
    private var outgoing: [() -> Void] = []
    private var later: [Publication] = []
    private var lastID: UInt16 = 0

    var topicsAsked: [String] { asked.flatMap { $0.map(\.topic) } }

    func forgetAsked() { asked = [] }

    func connect(startsClean: Bool) throws(MQTTError) {
        isConnected = true
        connections += 1
        let isPresent = connections > 1 && !isForgetful
        if !isPresent { filters = [:] }
        delegate?.connected(
            sessionPresent: isPresent, limits: BrokerLimits(identifiersAvailable: hasIdentifiers))
    }

    /// Whether it forgets the session with the connection.
    var isForgetful = false

    func disconnect(_ reason: ReasonCode) { isConnected = false }

    /// The connection ends. Nothing of it arrives any more.
    func end() {
        isConnected = false
        (outgoing, later) = ([], [])
        delegate?.disconnected(MQTTError(.connectionLost))
    }

    private func nextID() throws(MQTTError) -> PacketID {
        guard isConnected else { throw MQTTError(.notConnected) }
        lastID += 1
        return PacketID(rawValue: lastID)
    }

    func publish(_ publication: Publication) throws(MQTTError) -> PacketID {
        let id = try nextID()
        outgoing.append { [unowned self] in delegate?.acknowledged(id, .success) }
        return id
    }

    func subscribe(_ filters: [TopicFilter]) throws(MQTTError) -> PacketID {
        let id = try nextID()
        asked.append(filters)
        var shown: [Publication] = []
        for filter in filters where !refuses(filter.topic) {
            let isNew = self.filters.updateValue(filter, forKey: filter.topic) == nil
            guard filter.retainHandling == .always || filter.retainHandling == .ifNew && isNew else { continue }
            for (topic, publication) in retained.sorted(by: { $0.key < $1.key })
            where BridgeTopic.matches(filter.topic, topic) && !hides(topic) {
                var copy = publication
                copy.subscriptions = filter.identifier.map { [$0] } ?? []
                shown.append(copy)
            }
        }
        let reasons = filters.map { refuses($0.topic) ? ReasonCode.notAuthorized : .grantedAtLeastOnce }
        if isDeaf { return id }
        outgoing.append { [unowned self] in delegate?.subscribed(id, reasons) }
        if isSlow { later += shown } else { for one in shown where outgoing.count < room { send(one) } }
        return id
    }

    func unsubscribe(_ topics: [String]) throws(MQTTError) -> PacketID {
        let id = try nextID()
        for topic in topics { filters[topic] = nil }
        outgoing.append { [unowned self] in delegate?.unsubscribed(id) }
        return id
    }

    private func send(_ publication: Publication) {
        outgoing.append { [unowned self] in delegate?.received(publication) }
    }

    /// Somebody else publishes.
    func publishOfOther(_ publication: Publication) {
        if publication.isRetained {
            retained[publication.topic] = publication.payload.isEmpty ? nil : publication
        }
        // A copy for each subscription, as mosquitto does.
        for filter in filters.values
        where BridgeTopic.matches(filter.topic, publication.topic) && !hides(publication.topic) {
            var copy = publication
            copy.subscriptions = filter.identifier.map { [$0] } ?? []
            copy.isRetained = publication.isRetained && filter.keepsRetainFlag
            send(copy)
        }
    }

    /// Messages that are sent in the background are on their way.
    func showLate() {
        later.forEach(send)
        later = []
    }

    /// All that is on its way arrives.
    ///
    /// - Parameter most: the maximum of packets.
    func deliver(_ most: Int = .max) {
        var left = most
        while left > 0, !outgoing.isEmpty, !isReadingPaused {
            left -= 1
            outgoing.removeFirst()()
        }
    }
}
