// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT

/// The check of messages from the broker, without input and output. Any client of the broker may have sent them.
struct InwardGate {
    enum Judgement {
        /// The message does not concern the bridge.
        case ignored
        /// This host has published the message.
        case own(BridgeTopic)
        /// The state of a host has changed.
        case presence(Origin, HostTable.Host, before: HostTable.Host?)
        /// No observer wants the name, or it may not be imported.
        case unwanted(name: String)
        /// - Parameter reason: nil if the refusal is no loss.
        case refused(name: String, Origin, LossReason?, words: String)
        /// The message has arrived before.
        case repeated
        case message(InwardMessage)
    }

    private let realm: String
    private let own: Origin
    let imports: [NamePattern]
    var wanted = WantedNames() {
        // A message that arrives while its name is unwanted is not missing.
        didSet { places.keep { [wanted] in wanted.contains($0) } }
    }
    private(set) var hosts = HostTable()
    private(set) var places: SequenceTracker

    /// - Parameter places: the sequence numbers that an earlier process has seen.
    init(
        realm: String, own: Origin, imports: [NamePattern], places: SequenceTracker = SequenceTracker(),
        hosts: HostTable = HostTable()
    ) {
        self.hosts = hosts
        self.places = places
        self.realm = realm
        self.own = own
        self.imports = imports
    }

    mutating func take(_ hosts: HostTable) { self.hosts = hosts }
    mutating func forget(_ host: Origin) { hosts.forget(host) }
    mutating func extendHoles(now: SuspendingClock.Instant) { places.extendHoles(now: now) }
    mutating func valueIsGone(on topic: String) { places.valueIsGone(on: topic) }
    mutating func beginConfirmingHosts() { hosts.beginConfirming() }
    mutating func confirmHosts(_ origins: some Sequence<Origin>) { hosts.confirm(origins) }
    mutating func endConfirmingHosts(_ forgotten: [Origin]) -> [Origin] { hosts.endConfirming(forgotten) }

    mutating func judge(_ publication: Publication, now: SuspendingClock.Instant) -> Judgement {
        guard let topic = BridgeTopic(publication.topic, in: realm) else { return .ignored }
        guard topic.origin != own else { return .own(topic) }
        switch topic.subject {
        case .status, .test: return .ignored
        case .online:
            let before = hosts[topic.origin]
            guard let host = hosts.take(publication, of: topic.origin) else { return .ignored }
            return .presence(topic.origin, host, before: before)
        case .notification(let name), .value(let name, _):
            // The bridge's own names are never imported.
            guard !WantedNames.ownNames.matches(name) else { return .ignored }
            guard wanted.contains(name), WantedNames.mayImport(name, imports) else { return .unwanted(name: name) }
            return judge(publication, on: topic, name, now)
        }
    }

    private mutating func judge(
        _ publication: Publication, on topic: BridgeTopic, _ name: String, _ now: SuspendingClock.Instant
    ) -> Judgement {
        guard let properties = MessageProperties(publication.userProperties) else {
            return .refused(
                name: name, topic.origin, .undecodable, words: "a user property has an invalid value")
        }
        // A message with a number has lost nothing, even if its host is marked as stripped.
        if hosts[topic.origin]?.isStripped == true, properties.place == nil {
            return .refused(name: name, topic.origin, .stripped, words: "it lost its properties on the way")
        }
        // A refused message is checked as well, or it would also count as missing.
        let verdict = places.check(
            topic: publication.topic, origin: topic.origin, name: name, place: properties.place,
            isValue: publication.isRetained, mayOvertake: BrokerLink.isOfQuery(publication), now: now)
        if verdict == .repeated { return .repeated }
        do throws(InwardMessage.Refusal) {
            let message = try InwardMessage(publication, on: topic)
            // The first retained message on a topic existed before; a retained message without a number may have
            // existed before.
            let isAnew = message.isKept && (verdict == .first || properties.place == nil)
            return .message(message.told(anew: isAnew))
        } catch {
            switch error {
            case .tooManyHops: return .refused(name: name, topic.origin, nil, words: "it passed too many bridges")
            case .undecodable(let words): return .refused(name: name, topic.origin, .undecodable, words: words)
            }
        }
    }

    /// Returns the losses that are certain by now.
    mutating func losses(at now: SuspendingClock.Instant) -> [SequenceTracker.Loss] { places.losses(at: now) }

    /// Whether messages are missing, except behind messages of a query, which overtake others.
    func isMissingSome(at now: SuspendingClock.Instant) -> Bool { places.isMissingSome(at: now) }

    /// Whether ``losses(at:)`` must be asked again later.
    var isWaitingForLosses: Bool { places.isWaiting }
}
