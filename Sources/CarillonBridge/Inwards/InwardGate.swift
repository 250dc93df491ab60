// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT

/// What becomes of whatever comes from the broker: decided here, without input and output. Anybody there may have sent it.
struct InwardGate {
    enum Judgement {
        /// It is none of the bridge's business.
        case ignored
        /// What this host has published itself.
        case own(BridgeTopic)
        /// Something is new about a host.
        case presence(Origin, HostTable.Host, before: HostTable.Host?)
        /// Nobody wants that name, or nobody may have it.
        case unwanted(name: String)
        /// - Parameter reason: nil for what is no loss.
        case refused(name: String, Origin, LossReason?, words: String)
        /// It came already.
        case repeated
        case message(InwardMessage)
    }

    private let realm: String
    private let own: Origin
    let imports: [NamePattern]
    var wanted = WantedNames() {
        // A message that comes while nobody wants it is not missing.
        didSet { places.keep { [wanted] in wanted.contains($0) } }
    }
    private(set) var hosts = HostTable()
    private(set) var places: SequenceTracker

    /// - Parameter places: what an earlier process has heard.
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
            // Nobody ever wants those.
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
                name: name, topic.origin, .undecodable, words: "a user property has a value that it can't have")
        }
        // A message that has its number has lost nothing, also where its host is said to be one of those.
        if hosts[topic.origin]?.isStripped == true, properties.place == nil {
            return .refused(name: name, topic.origin, .stripped, words: "it lost its properties on the way")
        }
        // Also of a message that is refused, or it would be missing besides.
        let verdict = places.check(
            topic: publication.topic, origin: topic.origin, name: name, place: properties.place,
            isValue: publication.isRetained, mayOvertake: BrokerLink.isOfQuery(publication), now: now)
        if verdict == .repeated { return .repeated }
        do throws(InwardMessage.Refusal) {
            let message = try InwardMessage(publication, on: topic)
            // The first that is heard of on a topic and is kept there was there before; one without a number may be.
            let isAnew = message.isKept && (verdict == .first || properties.place == nil)
            return .message(message.told(anew: isAnew))
        } catch {
            switch error {
            case .tooManyHops: return .refused(name: name, topic.origin, nil, words: "it went through too many bridges")
            case .undecodable(let words): return .refused(name: name, topic.origin, .undecodable, words: words)
            }
        }
    }

    /// The losses that are certain by now.
    mutating func losses(at now: SuspendingClock.Instant) -> [SequenceTracker.Loss] { places.losses(at: now) }

    /// Whether messages are missing, and not only behind those of a query, which overtake others.
    func isMissingSome(at now: SuspendingClock.Instant) -> Bool { places.isMissingSome(at: now) }

    /// Whether ``losses(at:)`` is to be asked again, in a while.
    var isWaitingForLosses: Bool { places.isWaiting }
}
