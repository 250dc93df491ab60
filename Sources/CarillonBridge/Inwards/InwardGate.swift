// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT

/// The check of messages from the broker, before ``Importer`` passes them to the session. Any client of the broker may
/// have sent a message, so nothing in it is trusted. It does no input and output.
struct InwardGate {
    /// The result of the check.
    enum Judgement {
        /// The message does not concern the bridge.
        case ignored
        /// The message is on a topic of this host.
        case own(BridgeTopic)
        /// The presence of a host has changed.
        case presence(Origin, HostTable.Host, before: HostTable.Host?)
        /// No observer wants the name, or the configuration does not import it.
        case unwanted(name: String)
        /// The message is discarded because of its content. The values are its name, its host, the reason for the
        /// report of the loss, and the explanation for the log. The reason is nil if the refusal is no loss.
        case refused(name: String, Origin, LossReason?, words: String)
        /// The message is a duplicate.
        case repeated
        /// The message is to be posted.
        case message(InwardMessage)
    }

    private let realm: String
    /// The origin of this host.
    private let own: Origin
    /// The names that the configuration imports.
    let imports: [NamePattern]
    /// The names to which the bridge subscribes.
    var wanted = WantedNames() {
        // Messages of an unwanted name do not arrive, and must not count as missing later.
        didSet { places.keep { [wanted] in wanted.contains($0) } }
    }
    /// The presence of the hosts of the realm.
    private(set) var hosts = HostTable()
    /// The sequence numbers of each topic.
    private(set) var places: SequenceTracker

    /// Creates the check.
    ///
    /// - Parameters:
    ///   - own: the origin of this host, whose messages are not imported.
    ///   - imports: the names that the configuration imports.
    ///   - places: the sequence numbers that an earlier process has seen.
    ///   - hosts: the hosts that are known already.
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

    // Changes of the two tables, which the methods of the same names of `HostTable` and `SequenceTracker` make.
    mutating func take(_ hosts: HostTable) { self.hosts = hosts }
    mutating func forget(_ host: Origin) { hosts.forget(host) }
    mutating func extendHoles(now: SuspendingClock.Instant) { places.extendHoles(now: now) }
    mutating func valueIsGone(on topic: String) { places.valueIsGone(on: topic) }
    mutating func beginConfirmingHosts() { hosts.beginConfirming() }
    mutating func confirmHosts(_ origins: some Sequence<Origin>) { hosts.confirm(origins) }
    mutating func endConfirmingHosts(_ forgotten: [Origin]) -> [Origin] { hosts.endConfirming(forgotten) }

    /// Checks a message, and notes its sequence number or presence.
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

    /// Checks a message on the topic of a notification or value.
    private mutating func judge(
        _ publication: Publication, on topic: BridgeTopic, _ name: String, _ now: SuspendingClock.Instant
    ) -> Judgement {
        guard let properties = MessageProperties(publication.userProperties) else {
            return .refused(
                name: name, topic.origin, .undecodable, words: "a user property has an invalid value")
        }
        // Without the number in its properties, a duplicate or a loss could not be noticed. A message with a number has
        // kept its properties, even if its host is marked as stripped.
        if hosts[topic.origin]?.isStripped == true, properties.sequenceNumber == nil {
            return .refused(name: name, topic.origin, .stripped, words: "an intermediary removed its properties")
        }
        // The number of a message that is then refused is noted as well. Otherwise it would also count as missing.
        let verdict = places.check(
            topic: publication.topic, origin: topic.origin, name: name, sequenceNumber: properties.sequenceNumber,
            isValue: publication.isRetained, mayOvertake: BrokerLink.isOfQuery(publication), now: now)
        if verdict == .repeated { return .repeated }
        do throws(InwardMessage.Refusal) {
            let message = try InwardMessage(publication, on: topic)
            // Such a value may have existed before, so it is compared with the session's value before it is posted.
            let isAnew = message.isRetainedValue && (verdict == .first || properties.sequenceNumber == nil)
            return .message(message.marked(anew: isAnew))
        } catch {
            switch error {
            case .tooManyHops: return .refused(name: name, topic.origin, nil, words: "it passed too many bridges")
            case .undecodable(let words): return .refused(name: name, topic.origin, .undecodable, words: words)
            }
        }
    }

    /// Returns the losses of holes whose time limit has passed.
    mutating func losses(at now: SuspendingClock.Instant) -> [SequenceTracker.Loss] { places.losses(at: now) }

    /// Whether messages are missing, except behind messages of a query, which overtake others.
    func isMissingSome(at now: SuspendingClock.Instant) -> Bool { places.isMissingSome(at: now) }

    /// Whether ``losses(at:)`` must be asked again later.
    var isWaitingForLosses: Bool { places.isWaiting }
}
