// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The direction from the broker into the session. It subscribes to the names that the session's observers want, checks
/// received messages with ``InwardGate`` and appends them to ``InwardPosts``. It also keeps the session's copies of
/// other hosts' retained values complete (``ValueFetch``) and free of ended ones (``ValueAudit``).
///
/// A ``BridgeInstance`` has one importer and passes all events to it.
final class Importer {
    private let configuration: BridgeConfiguration
    private let posts: InwardPosts
    private let broker: BrokerLink
    /// Reports losses: their number, name, origin and reason.
    private let lost: (UInt64, String?, Origin, LossReason) -> Void
    /// The check of messages, with the tables of hosts and of sequence numbers.
    private(set) var gate: InwardGate
    /// The values that end with their posters.
    private var bound = BoundValues()
    /// The filters that the broker's session has from this process, or from the process before if that ended in order.
    /// For any other filter the bridge fetches all values. It can't rely on its copies, because values that end with
    /// their posters have to be known (R8).
    private var subscribed: Set<String> = []
    /// The unanswered subscriptions, with their filters.
    private var subscribing: [PacketID: [String]] = [:]
    /// Runs while sequence numbers are missing (``watchHoles()``).
    private var holeTimer: EventSource?
    /// The removal of values that the broker no longer has.
    private let audit: ValueAudit
    /// The requests for the values of subscriptions.
    private var fetch: ValueFetch!
    /// The wall-clock time of the last fetch of all values at a connection.
    private var fetchedAt: Int64?
    /// The timer of the next fetch of all values after a connection: the broker may have dropped messages while the
    /// bridge was away.
    private var fetchTimer: EventSource?
    /// Runs during the pause after a fetch of all values because of dropped messages.
    private var refreshTimer: EventSource?
    /// Whether messages were dropped since that fetch, so that another one follows the pause.
    private var isRefreshDue = false
    /// The length of the next such pause, in milliseconds.
    private var pause = pauses.lowerBound
    /// The time of the last such fetch.
    private var refreshedAt: SuspendingClock.Instant?
    private let context: MainContext
    /// Returns the wall-clock time, in microseconds since 1970 in UTC.
    private let time: () -> Int64
    /// The counts for the status.
    var totals = Totals()
    /// Called when the broker has dropped messages, with a minimum pause between two calls.
    var onDrops: () -> Void = {}
    /// Asks the service for its list of values, which ``found(_:)`` receives.
    var askForValueList: () -> Void = {}
    /// The hash values of messages that are faulty or exceeded a quota. Each is reported as a loss once, however often
    /// the broker shows it.
    private var faulty: Set<Int> = []
    /// The maximum number of these hash values; beyond it all are forgotten.
    private static let maxFaulty = 131_072
    /// The machines for whose values the service has no space.
    private var full = FullHosts()
    /// The hosts that are offline, whose values end after some time.
    private var absent: AbsentHosts!
    /// The names of an earlier configuration's imports, until the values of names that are no longer imported have been
    /// removed.
    private var earlierImports: [NamePattern] = []
    /// The devices that an earlier configuration mapped, until the values of unmapped devices have been removed.
    private var earlierDevices: Set<Origin> = []
    /// The hosts of which all values are to be removed when the service lists its values.
    private var forgotten: Set<Origin> = []

    /// The numbers of messages that were not posted, since the process began.
    struct Totals {
        /// Duplicates.
        var repeated: UInt64 = 0
        /// Messages that the checks refused.
        var refused: UInt64 = 0
    }

    /// Creates an importer, which subscribes when ``connected(sessionPresent:)`` and ``want(_:any:)`` are called.
    init(
        _ configuration: BridgeConfiguration, _ environment: BridgeEnvironment, center: CenterLink, posts: InwardPosts,
        broker: BrokerLink, context: MainContext, lost: @escaping (UInt64, String?, Origin, LossReason) -> Void
    ) {
        time = environment.time
        self.configuration = configuration
        self.posts = posts
        self.broker = broker
        self.context = context
        self.lost = lost
        gate = InwardGate(
            realm: configuration.realm, own: configuration.origin, imports: configuration.imports)
        audit = ValueAudit(realm: configuration.realm, broker: broker, context: context)
        audit.delegate = self
        absent = AbsentHosts(
            after: configuration.followsPresence ? configuration.absenceExpiry : 0, context: context,
            time: environment.time
        ) { [unowned self] origins in
            for origin in origins {
                Log.notice("\(origin.text) was offline for longer than absence-expiry: its values are removed here")
                forgetValues(of: origin)
            }
        }
        fetch = ValueFetch(
            broker: broker, context: context, wanted: { [unowned self] in filters },
            byHost: { [unowned self] filter in
                gate.hosts.hosts.keys.compactMap { BridgeTopic.filter(filter, of: $0, in: self.configuration.realm) }
            }, done: { [unowned self] in audit.request() })
    }

    /// Continues with the state of an earlier bridge. The parts of the state that concern another realm or
    /// configuration are left out.
    func goOn(with state: SavedState) {
        // These messages were acknowledged to the broker, so only this process has them.
        state.inbox.forEach(posts.append)
        let isSameRealm = state.realm == configuration.realm
        if isSameRealm, configuration.followsPresence {
            for value in state.bound { bound.restore(value, now: time()) }
        } else {
            // Without presence messages of their hosts these values would never end, so they end now.
            for value in state.bound where value.isHere { remove(value.message) }
        }
        earlierImports = state.imports
        for filter in state.subscriptions.filters {
            // A filter for topics of bridges is no valid pattern for devices.
            guard let pattern = try? TopicPattern(filter) else { continue }
            if let device = Origin(host: pattern.root, user: TopicMap.user) { earlierDevices.insert(device) }
        }
        var check = SequenceTracker()
        if isSameRealm {
            // Messages of names that are not imported do not arrive, and are no losses.
            for sequenceNumber in state.places where WantedNames.mayImport(sequenceNumber.name, configuration.imports) {
                check.restore(sequenceNumber, now: context.now)
            }
            audit.irregular = state.irregular
            absent.restore(state.absences, unless: { gate.hosts[$0]?.isOnline == true })
            isRefreshDue = state.mustFetchValues
            if state.subscriptions.broker == configuration.brokerText { subscribed = state.subscriptions.filters }
        }
        gate = InwardGate(
            realm: configuration.realm, own: configuration.origin, imports: configuration.imports, places: check,
            hosts: gate.hosts)
        posts.removeAll { [imports = configuration.imports] in
            // The removal of a value is still posted, also of names that are no longer imported.
            if case .removal = $0.content { false } else { !WantedNames.mayImport($0.name, imports) }
        }
        watchHoles()
        posts.pump()
    }

    /// Processes the service's list of all its values.
    func found(_ values: some Sequence<FollowValues.Listed>) {
        removeUnlisted(values)
        full.found(values)
        audit.answered(values)
    }

    /// Removes values from the session: of names and devices that the configuration no longer imports, and of forgotten
    /// hosts.
    private func removeUnlisted(_ values: some Sequence<FollowValues.Listed>) {
        guard !earlierImports.isEmpty || !earlierDevices.isEmpty || !forgotten.isEmpty else { return }
        for value in values {
            guard let host = value.host, let origin = Origin(host: host, user: value.user ?? "") else { continue }
            let isUnlisted =
                WantedNames.mayImport(value.name, earlierImports)
                && !WantedNames.mayImport(value.name, configuration.imports)
            let isUnmapped = earlierDevices.contains(origin) && !configuration.map.takes(value.name, of: origin)
            guard isUnlisted || isUnmapped || forgotten.contains(origin) else { continue }
            let topic = BridgeTopic(value: value.name, value.object, of: origin)
            let text = topic.text(in: configuration.realm)
            gate.valueIsGone(on: text)
            let publication = Publication(topic: text, payload: [], isRetained: true)
            if let message = try? InwardMessage(publication, on: topic) { posts.append(message) }
        }
        (earlierImports, earlierDevices, forgotten) = ([], [], [])
        posts.pump()
    }

    /// Continues with the hosts that an earlier importer knew and the session knows of.
    func take(_ hosts: HostTable) { gate.take(hosts) }

    /// The filters for the wanted names.
    var filters: Set<String> { gate.wanted.filters(in: configuration.realm) }

    /// The filters for topics of devices that are mapped to wanted names (G2).
    private var mappedFilters: Set<String> {
        configuration.map.filters { [gate] name in
            gate.wanted.contains(name) && WantedNames.mayImport(name, gate.imports)
        }
    }

    // MARK: Subscriptions

    /// Subscribes to the names that the session's observers want now, and unsubscribes from all others.
    ///
    /// - Parameter isAnyWanted: whether an observer wants any name.
    func want(_ names: [String], any isAnyWanted: Bool) {
        let (before, mappedBefore) = (filters, mappedFilters)
        gate.wanted = WantedNames(
            observed: names, isAnyObserved: isAnyWanted, imports: configuration.imports,
            maxSubscriptions: configuration.maxSubscriptions)
        if gate.wanted.isCut {
            Log.warning(
                "more names are observed than subscriptions = \(configuration.maxSubscriptions) allows: "
                    + "the other names are not subscribed to")
        }
        let after = filters
        // Values that are bound to posters are removed with their subscription, because nothing would report their end.
        // The broker sends them again with the next subscription.
        bound.removeAll { [wanted = gate.wanted] in !wanted.contains($0.message.name) }.forEach(remove)
        posts.pump()
        unsubscribe(before.subtracting(after))
        subscribe(after.subtracting(before), behindQueue: false)
        unsubscribe(mappedBefore.subtracting(mappedFilters))
        subscribeMapped(mappedFilters.subtracting(mappedBefore))
    }

    /// Subscribes to everything on a new connection, because the broker may have forgotten the subscriptions, and
    /// schedules a fetch of all values.
    ///
    /// - Parameter sessionPresent: whether the broker has kept the session.
    func connected(sessionPresent: Bool) {
        audit.connected(sessionPresent: sessionPresent)
        absent.connected()
        // Without a connection no message could fill a hole.
        gate.extendHoles(now: context.now)
        watchHoles()
        if !sessionPresent {
            // `subscribe` fetches the values of all filters that the broker's session does not have.
            (subscribed, isRefreshDue) = ([], false)
        }
        subscribe(filters, behindQueue: sessionPresent)
        // The broker's session may still have filters for devices of an earlier configuration.
        unsubscribe(subscribed.filter { !BridgeTopic.isOfBridges($0) }.subtracting(mappedFilters))
        subscribeMapped(mappedFilters)
        guard sessionPresent else { return }
        // The bridge itself ended the last connection, because of dropped messages. Requests continue with the same
        // pauses as before.
        guard !broker.isRenewed else {
            fetch.connected()
            return goOnRefreshing()
        }
        // The broker's queue for this session is bounded. It may have dropped messages while the bridge was away.
        let left = fetchedAt.map { Self.betweenFetches - abs(time() - $0) } ?? 0
        guard left > 0, !isRefreshDue, fetch.isDone else { return fetchAll() }
        fetchTimer = .once(milliseconds: UInt32(clamping: left / 1_000), on: context) { [unowned self] in fetchAll() }
    }

    /// Fetches all values, behind the messages that the broker has queued for the session.
    private func fetchAll() {
        (fetchTimer, isRefreshDue) = (nil, false)
        fetchedAt = time()
        full.tryAgain()
        fetch.fetchBehindQueue(filters)
    }

    /// The minimum time between two fetches of all values at connections, in microseconds of the wall clock, which
    /// continues while the machine sleeps.
    private static let betweenFetches: Int64 = 600_000_000

    /// Handles the end of the connection.
    func connectionEnded() {
        (subscribing, fetchTimer) = ([:], nil)
        fetch.connectionEnded()
        audit.connectionEnded()
        absent.connectionEnded()
    }

    /// Handles the broker's answer to a subscription.
    func subscribed(_ id: PacketID, _ reasons: [ReasonCode]) {
        guard let asked = subscribing.removeValue(forKey: id) else { return }
        subscribed.formUnion(zip(asked, reasons).filter { !$0.1.isFailure }.map(\.0))
    }

    /// Handles the broker's answer to an unsubscription.
    func unsubscribed(_ id: PacketID) { audit.answeredUnsubscription(id) }

    /// Subscribes to filters of bridges' topics, and fetches the values of filters that are new to the broker's
    /// session.
    ///
    /// - Parameter isBehind: whether the broker may first send messages that it has queued for the session.
    private func subscribe(_ filters: Set<String>, behindQueue isBehind: Bool) {
        // Known and new filters differ in their options, so they leave in separate packets. The values of new filters
        // are fetched, so they do not come with the subscription. For a known filter the broker sends them if it has
        // lost the subscription.
        for known in [true, false] {
            let all = filters.filter { subscribed.contains($0) == known }
            for part in all.sorted().chunks(of: RetainedQueries.batchSize) {
                let id = broker.subscribe(
                    part.map { filter in
                        TopicFilter(
                            filter, excludesOwn: true, keepsRetainFlag: true, retainHandling: known ? .ifNew : .never)
                    })
                if let id { subscribing[id] = Array(part) }
            }
            guard !known, !all.isEmpty else { continue }
            if isBehind { fetch.fetchBehindQueue(all) } else { fetch.fetch(all) }
        }
    }

    /// Subscribes to topics of devices, with the values that the broker retains there. The values come with the
    /// subscription, because a separate query would need another filter for the same topics. Devices often publish with
    /// quality of service 0, which a broker does not queue for an absent client, so the values are requested at each
    /// connection.
    private func subscribeMapped(_ filters: Set<String>) {
        for part in filters.sorted().chunks(of: RetainedQueries.batchSize) {
            let id = broker.subscribe(
                part.map { TopicFilter($0, excludesOwn: true, keepsRetainFlag: true, retainHandling: .always) })
            if let id { subscribing[id] = Array(part) }
        }
    }

    /// Unsubscribes from filters.
    private func unsubscribe(_ filters: Set<String>) {
        subscribed.subtract(filters)
        for part in filters.sorted().chunks(of: RetainedQueries.batchSize) {
            if let id = broker.unsubscribe(Array(part)) { audit.unsubscribed(by: id) }
        }
    }

    // MARK: Fetches after dropped messages

    /// The pause between two fetches of all values because of dropped messages, in milliseconds. It doubles each time,
    /// because any client of the broker can feign drops, or have more values than fit.
    private static let pauses: ClosedRange<UInt32> = 60_000...3_600_000

    /// Notes that the service had no space for a value. The value is fetched again later, when there may be space.
    ///
    /// - Returns: whether it is the first time for this value.
    func noteNoSpace(for message: InwardMessage) -> Bool {
        gate.valueIsGone(on: message.publication.topic)
        if full.insert(message.origin.host) { askForValueList() }
        refresh()
        return isNewFault(message.publication)
    }

    /// Schedules a fetch of all values, because messages are missing: values may have changed or ended.
    private func refresh() {
        isRefreshDue = true
        goOnRefreshing()
    }

    /// Fetches all values if that is due and the pause is over.
    private func goOnRefreshing() {
        guard isRefreshDue, refreshTimer == nil, broker.isConnected else { return }
        isRefreshDue = false
        full.tryAgain()
        audit.requestAfterDrops()
        onDrops()
        fetch.fetch(filters)
        // The pause is halved for each period of its own length in which no fetch was necessary.
        var quiet = refreshedAt.map { (context.now - $0).microseconds / 1000 - Int64(pause) } ?? 0
        while quiet >= Int64(pause), pause > Self.pauses.lowerBound {
            quiet -= Int64(pause)
            pause = max(pause / 2, Self.pauses.lowerBound)
        }
        refreshedAt = context.now
        refreshTimer = .once(milliseconds: pause, on: context) { [unowned self] in
            refreshTimer = nil
            goOnRefreshing()
        }
        pause = min(pause * 2, Self.pauses.upperBound)
    }

    // MARK: Messages

    /// Checks a message of the broker, and appends it to the messages to post. The steps:
    /// 1. Translate a message of a device, and check it (``InwardGate``).
    /// 2. Pass a retained message to the audit, also if it is then discarded: it shows that the broker has the value.
    /// 3. Discard a value from a query if the values of its host have ended here (`absent`).
    /// 4. Apply the presence of its host to a value that is bound to its poster (`bound`).
    /// 5. Discard a value from a query for which the service certainly has no space (`full`).
    /// 6. Append the message.
    ///
    /// After steps 3 and 5 the message is accepted again when the broker shows it again.
    ///
    /// - Returns: the judgement, for the other parts of the bridge.
    func take(_ publication: Publication) -> InwardGate.Judgement {
        let publication = configuration.map.translated(publication, in: configuration.realm) ?? publication
        let judgement = gate.judge(publication, now: context.now)
        defer { watchHoles() }
        if publication.isRetained {
            switch judgement {
            case .ignored, .own, .presence: break
            case .unwanted: audit.take(publication, isWanted: false)
            case .refused, .repeated, .message: audit.take(publication, isWanted: true)
            }
        }
        switch judgement {
        case .ignored, .own, .presence: break
        // The subscription is of an earlier process, whose session the broker has kept, or the name was wanted until
        // now.
        case .unwanted(let name): if !BrokerLink.isOfQuery(publication) { unsubscribeUnwanted(name) }
        case .refused where publication.isRetained && !isNewFault(publication): totals.repeated += 1
        case .refused(let name, let origin, let reason, let words):
            totals.refused += 1
            Log.info("\(name) of \(origin.text) is not imported: \(words)")
            if let reason { lost(1, name, origin, reason) }
        // A message that is published during a query arrives twice.
        case .repeated: if !BrokerLink.isOfQuery(publication) { totals.repeated += 1 }
        case .message(let message):
            // The values of a host end here after a long absence. The broker may still retain them.
            if BrokerLink.isOfQuery(publication), absent.isOver(message.origin) {
                gate.valueIsGone(on: publication.topic)
                return judgement
            }
            let lacksSpace = BrokerLink.isOfQuery(publication) && full.hasNoSpace(for: message)
            if BrokerLink.isOfQuery(publication), !lacksSpace { fetch.noteProgress() }
            if message.isRetainedValue, !message.isOnTopicOfBridge(in: configuration.realm) {
                audit.irregular.insert(message.origin)
            }
            if configuration.followsPresence {
                switch bound.take(message, host: gate.hosts[message.origin], now: time()) {
                case .post: break
                case .wait:
                    // The session may still have the value from an earlier bridge process that was killed.
                    remove(message)
                    posts.pump()
                    return judgement
                case .refuse:
                    totals.refused += 1
                    Log.info(
                        "\(message.name) of \(message.origin.text) is not imported: too many while-connected values")
                    lost(1, message.name, message.origin, .refused)
                    // Nothing would end an older value in the session, so it is removed.
                    remove(message)
                    posts.pump()
                    return judgement
                }
            }
            guard !lacksSpace else {
                gate.valueIsGone(on: publication.topic)
                if isNewFault(publication) {
                    totals.refused += 1
                    lost(1, message.name, message.origin, .refused)
                }
                return judgement
            }
            posts.append(message)
            posts.pump()
        }
        return judgement
    }

    /// Follows a change of a host's presence. Values that are bound to their posters end when their host goes offline,
    /// and return with it (R8).
    func follow(_ origin: Origin, _ host: HostTable.Host, before: HostTable.Host?) {
        follow(origin)
        audit.follow(origin, host, before: before)
    }

    /// Fetches the values of one host from the broker, after its values have ended here because of a long absence.
    private func fetchValues(of origin: Origin) {
        var own: [String: String] = [:]
        for all in filters {
            if let filter = BridgeTopic.filter(all, of: origin, in: configuration.realm) { own[filter] = all }
        }
        fetch.fetch(ofHost: own)
    }

    /// Applies the presence of a host to its values.
    private func follow(_ origin: Origin) {
        // Devices publish no presence. A device counts as online.
        if origin.user != TopicMap.user {
            let isOnline = gate.hosts[origin]?.isOnline == true
            // A host that has come back keeps its values.
            if isOnline { forgotten.remove(origin) }
            if absent.follow(origin, isOnline: isOnline) { fetchValues(of: origin) }
        }
        let (over, again) = bound.follow(origin, gate.hosts[origin], now: time())
        over.forEach(remove)
        for message in again { posts.append(message.marked(anew: true)) }
        posts.pump()
    }

    /// Removes the values on topics of a host from the session, because the broker retains nothing there any more. No
    /// message says so: ``ValueAudit`` has found it, or the bridge has removed the values itself (``HostRemoval``).
    func forget(_ origin: Origin, topics: [String]) {
        for topic in topics {
            let publication = Publication(topic: topic, payload: [], isRetained: true)
            guard let parsed = BridgeTopic(topic, in: configuration.realm) else { continue }
            switch parsed.subject {
            case .online:
                gate.forget(origin)
                audit.forget(origin)
                absent.forget(origin)
            case .notification, .value:
                if let message = try? InwardMessage(publication, on: parsed) {
                    _ = bound.take(message, host: nil, now: time())
                    posts.append(message)
                }
            case .status, .test: break
            }
        }
        posts.pump()
    }

    /// Removes all values of a host from the session, also values that the broker does not have, such as those of a
    /// device.
    func forgetValues(of origin: Origin) {
        forgotten.insert(origin)
        askForValueList()
    }

    /// Notes that the service has accepted a value.
    func kept(_ message: InwardMessage) { full.keeps(message) }

    /// Whether this message was not reported as faulty before.
    private func isNewFault(_ publication: Publication) -> Bool {
        var hasher = Hasher()
        hasher.combine(publication.topic)
        hasher.combine(publication.payload)
        hasher.combine(publication.contentType)
        for property in publication.userProperties {
            hasher.combine(property.name)
            hasher.combine(property.value)
        }
        if faulty.count >= Self.maxFaulty { faulty = [] }
        return faulty.insert(hasher.finalize()).inserted
    }

    /// Removes the value of a message from the session.
    private func remove(_ message: InwardMessage) {
        posts.append(message.removal)
    }

    /// Begins a confirmation: the hosts that are online need a new presence message, or they go offline at its end.
    func beginConfirmingHosts() { gate.beginConfirmingHosts() }
    /// Confirms hosts by their earlier messages.
    func confirmHosts(_ origins: [Origin]) { gate.confirmHosts(origins) }

    /// All hosts that are known from presence messages, values or saved absences.
    var knownHosts: Set<Origin> { Set(gate.hosts.hosts.keys).union(bound.origins).union(absent.hosts) }

    /// Ends the confirmation of hosts whose presence the broker has forgotten.
    ///
    /// - Returns: the hosts that were online and are offline now.
    func endConfirmingHosts(_ forgotten: [Origin]) -> [Origin] {
        let forgotten = gate.endConfirmingHosts(forgotten)
        for origin in forgotten { _ = absent.follow(origin, isOnline: false) }
        // Also applied to hosts of saved values, of which this process has received no presence.
        bound.origins.forEach(follow)
        audit.hostsAreConfirmed()
        return forgotten
    }

    /// Ends the subscriptions through which messages of an unwanted name arrive.
    private func unsubscribeUnwanted(_ name: String) {
        let filters = Set(BridgeTopic.filters(name: name, in: configuration.realm))
        unsubscribe(filters.subtracting(self.filters))
        unsubscribe(configuration.map.filters { ExactText.matches($0, name) }.subtracting(mappedFilters))
        for case .below(let prefix) in configuration.imports where NamePattern.below(prefix).matches(name) {
            unsubscribe(Set(BridgeTopic.filters(below: prefix, in: configuration.realm)).subtracting(self.filters))
        }
    }

    /// Checks each second, while sequence numbers are missing, whether they count as lost.
    private func watchHoles() {
        guard gate.isWaitingForLosses, holeTimer == nil else { return }
        holeTimer = .once(milliseconds: 1_000, on: context) { [unowned self] in
            holeTimer = nil
            // Without a connection no message can fill the holes.
            guard broker.isConnected else { return }
            // Unread messages may fill the holes.
            if broker.isReadingPaused {
                gate.extendHoles(now: context.now)
                return watchHoles()
            }
            // On another connection the broker sends unacknowledged messages again, which may fill the holes.
            if gate.isMissingSome(at: context.now) { broker.noteMissing(mayBeOlder: true) }
            let losses = gate.losses(at: context.now)
            for loss in losses { lost(loss.count, loss.name, loss.origin, .missing) }
            // The lost messages may have set or removed values.
            if !losses.isEmpty { refresh() }
            watchHoles()
        }
    }

    /// Closes the importer. Open holes stay open for the next bridge.
    ///
    /// - Parameter state: receives the importer's part of the state.
    func close(savingIn state: inout SavedState) {
        (onDrops, askForValueList) = ({}, {})
        (holeTimer, refreshTimer) = (nil, nil)
        for loss in gate.losses(at: context.now) { lost(loss.count, loss.name, loss.origin, .missing) }
        state.mustFetchValues = isRefreshDue || audit.mustFetch || !fetch.isDone
        state.places = gate.places.saved
        state.bound = bound.saved(at: time())
        state.irregular = audit.irregular
        if configuration.followsPresence {
            state.absences = absent.saved(present: gate.hosts.hosts.filter(\.value.isOnline).keys)
        }
        // Includes the names of an earlier bridge, if the values of unlisted names have not been removed yet.
        state.imports = configuration.imports + earlierImports.filter { !configuration.imports.contains($0) }
        state.subscriptions = .init(broker: configuration.brokerText, filters: subscribed)
    }
}

/// The hosts, names and actions for the audit.
extension Importer: ValueAuditDelegate {
    var hosts: HostTable { gate.hosts }
    var wanted: WantedNames { gate.wanted }
    func askForValues() { askForValueList() }

    func valuesAreGone(_ topics: [String], of origin: Origin) {
        for topic in topics { gate.valueIsGone(on: topic) }
        forget(origin, topics: topics)
    }
}
