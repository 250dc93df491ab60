// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The way from the broker into the session: subscribes to what is wanted, and checks messages.
final class Importer {
    private let configuration: BridgeConfiguration
    private let posts: InwardPosts
    private let broker: BrokerLink
    private let lost: (UInt64, String?, Origin, LossReason) -> Void
    private(set) var gate: InwardGate
    private var bound = BoundValues()
    /// The filters that the broker's session has: those of this process, and of the one before, if that ended in order. With
    /// others the broker sends all values: those that go with their posters have to be known (R8).
    private var subscribed: Set<String> = []
    private var subscribing: [PacketID: [String]] = [:]
    private var holeTimer: EventSource?
    private let audit: ValueAudit
    private var fetch: ValueFetch!
    private var fetchedAt: Int64?
    /// After the broker was asked for all values again, and whether there was a reason to do so since.
    /// Until all values are fetched of which some may have been dropped while the bridge was away.
    private var fetchTimer: EventSource?
    private var refreshTimer: EventSource?
    private var isRefreshDue = false
    private var pause = pauses.lowerBound
    private var refreshedAt: SuspendingClock.Instant?
    private let context: MainContext
    /// Microseconds since 1970 in UTC.
    private let time: () -> Int64
    var totals = Totals()
    /// Called when the broker has dropped messages, at most once in a while.
    var onDrops: () -> Void = {}
    /// Asks the service for all its values, which ``found(_:)`` gets.
    var onDoubt: () -> Void = {}
    /// The hash values of values that are faulty, or found no room: each is announced as a loss once, however often the broker
    /// shows it.
    private var faulty: Set<Int> = []
    private static let maxFaulty = 131_072
    private var full = FullHosts()
    private var absent: AbsentHosts!
    /// The names that were imported before; empty when the values of those that are no longer have been removed.
    private var earlierImports: [NamePattern] = []
    /// The same for devices that were mapped before, and hosts that are forgotten.
    private var earlierDevices: Set<Origin> = []
    private var forgotten: Set<Origin> = []

    /// Messages that were not handed on.
    struct Totals {
        var repeated: UInt64 = 0
        var refused: UInt64 = 0
    }

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
                Log.notice("\(origin.text) was not there for long: its values end here")
                forgetValues(of: origin)
            }
        }
        fetch = ValueFetch(
            broker: broker, context: context, wanted: { [unowned self] in filters },
            byHost: { [unowned self] filter in
                gate.hosts.hosts.keys.compactMap { BridgeTopic.filter(filter, of: $0, in: self.configuration.realm) }
            }, done: { [unowned self] in audit.doubt() })
    }

    /// Continues where an earlier bridge ended.
    func goOn(with state: SavedState) {
        // They are acknowledged: nobody else has them.
        state.inbox.forEach(posts.append)
        let isSameRealm = state.realm == configuration.realm
        if isSameRealm, configuration.followsPresence {
            for value in state.bound { bound.restore(value, now: time()) }
        } else {
            // Nobody would end them.
            for value in state.bound where value.isHere { remove(value.message) }
        }
        earlierImports = state.imports
        for filter in state.subscriptions.filters {
            guard let pattern = try? TopicPattern(filter) else { continue }
            if let device = Origin(host: pattern.root, user: TopicMap.user) { earlierDevices.insert(device) }
        }
        var check = SequenceTracker()
        if isSameRealm {
            // Messages that come while a name is not imported are not missing.
            for place in state.places where WantedNames.mayImport(place.name, configuration.imports) {
                check.restore(place, now: context.now)
            }
            audit.irregular = state.irregular
            absent.restore(state.absences, unless: { gate.hosts[$0]?.isOnline == true })
            isRefreshDue = state.isDoubtful
            if state.subscriptions.broker == configuration.brokerText { subscribed = state.subscriptions.filters }
        }
        gate = InwardGate(
            realm: configuration.realm, own: configuration.origin, imports: configuration.imports, places: check,
            hosts: gate.hosts)
        posts.removeAll { [imports = configuration.imports] in
            // That a value is gone is true all the same.
            if case .removal = $0.content { false } else { !WantedNames.mayImport($0.name, imports) }
        }
        watchHoles()
        posts.pump()
    }

    /// The service has told which values it has.
    func found(_ values: some Sequence<FollowValues.Listed>) {
        removeUnlisted(values)
        full.found(values)
        audit.answered(values)
    }

    /// Removes the values of names and devices that the configuration does not import any more, and of hosts that are forgotten.
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

    /// Takes the hosts that an earlier importer knew, which are announced already.
    func take(_ hosts: HostTable) { gate.take(hosts) }

    var filters: Set<String> { gate.wanted.filters(in: configuration.realm) }

    /// Those for topics of devices (G2).
    private var mappedFilters: Set<String> {
        configuration.map.filters { [gate] name in
            gate.wanted.contains(name) && WantedNames.mayImport(name, gate.imports)
        }
    }

    // MARK: Subscriptions

    /// Subscribes to the names that the session's observers want now, and unsubscribes from all others.
    func want(_ names: [String], any isAnyWanted: Bool) {
        let (before, mappedBefore) = (filters, mappedFilters)
        gate.wanted = WantedNames(
            observed: names, isAnyObserved: isAnyWanted, imports: configuration.imports,
            maxSubscriptions: configuration.maxSubscriptions)
        if gate.wanted.isCut {
            Log.warning(
                "more names are wanted than the limit subscriptions = \(configuration.maxSubscriptions) allows: "
                    + "the rest is not taken")
        }
        let after = filters
        // Nobody would tell that they end. The broker sends them again with the next subscription.
        bound.removeAll { [wanted = gate.wanted] in !wanted.contains($0.message.name) }.forEach(remove)
        posts.pump()
        unsubscribe(before.subtracting(after))
        subscribe(after.subtracting(before), behindQueue: false)
        unsubscribe(mappedBefore.subtracting(mappedFilters))
        subscribeMapped(mappedFilters.subtracting(mappedBefore))
    }

    /// Subscribes to everything again, as the broker may have forgotten.
    func connected(sessionPresent: Bool) {
        audit.connected(sessionPresent: sessionPresent)
        absent.connected()
        gate.extendHoles(now: context.now)
        watchHoles()
        if !sessionPresent {
            // It shows all values then.
            (subscribed, isRefreshDue) = ([], false)
        }
        subscribe(filters, behindQueue: sessionPresent)
        // Those of an earlier configuration, if the bridge of that ended in order.
        unsubscribe(subscribed.filter { !BridgeTopic.isOfBridges($0) }.subtracting(mappedFilters))
        subscribeMapped(mappedFilters)
        guard sessionPresent else { return }
        // The values that it had dropped are asked for as often as before.
        guard !broker.isRenewed else {
            fetch.connected()
            return goOnRefreshing()
        }
        // Its queue may not have had room for all that came since it was the last time that this bridge read.
        let left = fetchedAt.map { Self.betweenFetches - abs(time() - $0) } ?? 0
        guard left > 0, !isRefreshDue, fetch.isDone else { return fetchAll() }
        fetchTimer = .once(milliseconds: UInt32(clamping: left / 1_000), on: context) { [unowned self] in fetchAll() }
    }

    private func fetchAll() {
        (fetchTimer, isRefreshDue) = (nil, false)
        fetchedAt = time()
        full.tryAgain()
        fetch.fetchBehindQueue(filters)
    }

    /// Between two connections with all values, in microseconds. By the time of day, which goes on while the machine sleeps.
    private static let betweenFetches: Int64 = 600_000_000

    func connectionEnded() {
        (subscribing, fetchTimer) = ([:], nil)
        fetch.connectionEnded()
        audit.connectionEnded()
        absent.connectionEnded()
    }

    /// The broker has answered subscriptions.
    func subscribed(_ id: PacketID, _ reasons: [ReasonCode]) {
        guard let asked = subscribing.removeValue(forKey: id) else { return }
        subscribed.formUnion(zip(asked, reasons).filter { !$0.1.isFailure }.map(\.0))
    }

    func unsubscribed(_ id: PacketID) { audit.answeredUnsubscription(id) }

    /// Has the broker send what is published from now on, and the values of filters that are new to it.
    ///
    /// - Parameter isBehind: whether there may be earlier messages in the session's queue.
    private func subscribe(_ filters: Set<String>, behindQueue isBehind: Bool) {
        // All of a packet have the same options.
        for known in [true, false] {
            let all = filters.filter { subscribed.contains($0) == known }
            for part in all.sorted().chunks(of: RetainedQueries.together) {
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

    /// The same for topics of devices. A query for what is kept there would have another filter; and of messages with the quality
    /// of service 0 a broker keeps none for who is away.
    private func subscribeMapped(_ filters: Set<String>) {
        for part in filters.sorted().chunks(of: RetainedQueries.together) {
            let id = broker.subscribe(
                part.map { TopicFilter($0, excludesOwn: true, keepsRetainFlag: true, retainHandling: .always) })
            if let id { subscribing[id] = Array(part) }
        }
    }

    private func unsubscribe(_ filters: Set<String>) {
        subscribed.subtract(filters)
        for part in filters.sorted().chunks(of: RetainedQueries.together) {
            if let id = broker.unsubscribe(Array(part)) { audit.unsubscribed(by: id) }
        }
    }

    // MARK: Missing values

    /// Between two times that the broker is asked for all values, in milliseconds: each time twice as long, as anybody at the
    /// broker can make it seem that messages were dropped, or have more values than there is room for.
    private static let pauses: ClosedRange<UInt32> = 60_000...3_600_000

    /// There was no room for a value. When the broker shows it again there may be some.
    ///
    /// - Returns: whether it is the first time.
    func foundNoRoom(for message: InwardMessage) -> Bool {
        gate.valueIsGone(on: message.publication.topic)
        if full.insert(message.origin.host) { onDoubt() }
        refresh()
        return isNewFault(message.publication)
    }

    /// Messages are missing: values may have changed, or ended.
    private func refresh() {
        isRefreshDue = true
        goOnRefreshing()
    }

    private func goOnRefreshing() {
        guard isRefreshDue, refreshTimer == nil, broker.isConnected else { return }
        isRefreshDue = false
        full.tryAgain()
        audit.doubtAfterDrops()
        onDrops()
        fetch.fetch(filters)
        // Half for each time as long as the last pause that it was not necessary.
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

    /// Takes a message for the session.
    ///
    /// - Returns: its kind, for the other parts of the bridge.
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
        // Of an earlier process that the broker kept the session of, or of what was wanted a moment ago.
        case .unwanted(let name): if !BrokerLink.isOfQuery(publication) { unsubscribeUnwanted(name) }
        case .refused where publication.isRetained && !isNewFault(publication): totals.repeated += 1
        case .refused(let name, let origin, let reason, let words):
            totals.refused += 1
            Log.info("\(name) of \(origin.text) is not taken: \(words)")
            if let reason { lost(1, name, origin, reason) }
        // A message that is published while a query is open comes twice.
        case .repeated: if !BrokerLink.isOfQuery(publication) { totals.repeated += 1 }
        case .message(let message):
            if BrokerLink.isOfQuery(publication), absent.isOver(message.origin) {
                gate.valueIsGone(on: publication.topic)
                return judgement
            }
            let isWithoutRoom = BrokerLink.isOfQuery(publication) && full.hasNoRoom(for: message)
            if BrokerLink.isOfQuery(publication), !isWithoutRoom { fetch.noteProgress() }
            if message.isKept, !message.isOnTopicOfBridge(in: configuration.realm) {
                audit.irregular.insert(message.origin)
            }
            if configuration.followsPresence {
                switch bound.take(message, host: gate.hosts[message.origin], now: time()) {
                case .post: break
                case .wait:
                    // The session may have it from a process that was killed.
                    remove(message)
                    posts.pump()
                    return judgement
                case .refuse:
                    totals.refused += 1
                    Log.info("\(message.name) of \(message.origin.text) is not taken: too many values go with posters")
                    lost(1, message.name, message.origin, .refused)
                    // An older one would never end.
                    remove(message)
                    posts.pump()
                    return judgement
                }
            }
            guard !isWithoutRoom else {
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

    /// Something is new about a host. Values that go with their posters end with it, and are there again with it (R8).
    func follow(_ origin: Origin, _ host: HostTable.Host, before: HostTable.Host?) {
        follow(origin)
        audit.follow(origin, host, before: before)
    }

    /// Its values are taken again that the broker has kept.
    private func fetchValues(of origin: Origin) {
        var own: [String: String] = [:]
        for all in filters {
            if let filter = BridgeTopic.filter(all, of: origin, in: configuration.realm) { own[filter] = all }
        }
        fetch.fetch(ofHost: own)
    }

    private func follow(_ origin: Origin) {
        // A device is there while its messages come.
        if origin.user != TopicMap.user {
            let isOnline = gate.hosts[origin]?.isOnline == true
            // Its values were about to be ended.
            if isOnline { forgotten.remove(origin) }
            if absent.follow(origin, isOnline: isOnline) { fetchValues(of: origin) }
        }
        let (over, again) = bound.follow(origin, gate.hosts[origin], now: time())
        over.forEach(remove)
        for message in again { posts.append(message.told(anew: true)) }
        posts.pump()
    }

    /// Nothing is kept on these topics of a host any more. The broker does not tell those that say so.
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

    /// Nothing of a host is to be kept in the session, either: what the broker has not of it, as of a device, as well.
    func forgetValues(of origin: Origin) {
        forgotten.insert(origin)
        onDoubt()
    }

    /// The service has taken a value.
    func kept(_ message: InwardMessage) { full.keeps(message) }

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

    private func remove(_ message: InwardMessage) {
        posts.append(message.removal)
    }

    /// There is a new connection: what the broker does not show any more will be over.
    func beginConfirmingHosts() { gate.beginConfirmingHosts() }
    func confirmHosts(_ origins: [Origin]) { gate.confirmHosts(origins) }

    /// All hosts of which anything is known, and those whose values may end with them.
    var knownHosts: Set<Origin> { Set(gate.hosts.hosts.keys).union(bound.origins).union(absent.hosts) }

    /// The broker has forgotten these hosts.
    ///
    /// - Returns: those that were online.
    func endConfirmingHosts(_ forgotten: [Origin]) -> [Origin] {
        let forgotten = gate.endConfirmingHosts(forgotten)
        for origin in forgotten { _ = absent.follow(origin, isOnline: false) }
        // Also those that an earlier process knew.
        bound.origins.forEach(follow)
        audit.hostsAreConfirmed()
        return forgotten
    }

    private func unsubscribeUnwanted(_ name: String) {
        let filters = Set(BridgeTopic.filters(name: name, in: configuration.realm))
        unsubscribe(filters.subtracting(self.filters))
        unsubscribe(configuration.map.filters { ExactText.matches($0, name) }.subtracting(mappedFilters))
        for case .below(let prefix) in configuration.imports where NamePattern.below(prefix).matches(name) {
            unsubscribe(Set(BridgeTopic.filters(below: prefix, in: configuration.realm)).subtracting(self.filters))
        }
    }

    private func watchHoles() {
        guard gate.isWaitingForLosses, holeTimer == nil else { return }
        holeTimer = .once(milliseconds: 1_000, on: context) { [unowned self] in
            holeTimer = nil
            // Nothing can fill them meanwhile.
            guard broker.isConnected else { return }
            if broker.isReadingPaused {
                gate.extendHoles(now: context.now)
                return watchHoles()
            }
            if gate.isMissingSome(at: context.now) { broker.noteMissing(mayBeOlder: true) }
            let losses = gate.losses(at: context.now)
            for loss in losses { lost(loss.count, loss.name, loss.origin, .missing) }
            // A broker that has dropped messages may have dropped values, and their ends.
            if !losses.isEmpty { refresh() }
            watchHoles()
        }
    }

    /// Ends.
    ///
    /// - Parameter state: gets the part of the state that is that of the importer.
    func close(savingIn state: inout SavedState) {
        (onDrops, onDoubt) = ({}, {})
        (holeTimer, refreshTimer) = (nil, nil)
        for loss in gate.losses(at: context.now) { lost(loss.count, loss.name, loss.origin, .missing) }
        state.isDoubtful = isRefreshDue || audit.mustFetch || !fetch.isDone
        state.places = gate.places.saved
        state.bound = bound.saved(at: time())
        state.irregular = audit.irregular
        if configuration.followsPresence {
            state.absences = absent.saved(present: gate.hosts.hosts.filter(\.value.isOnline).keys)
        }
        // Those of an earlier bridge, whose values the service was not asked for yet.
        state.imports = configuration.imports + earlierImports
        state.subscriptions = .init(broker: configuration.brokerText, filters: subscribed)
    }
}

extension Importer: ValueAuditDelegate {
    var hosts: HostTable { gate.hosts }
    var wanted: WantedNames { gate.wanted }
    func askForValues() { onDoubt() }

    func valuesAreGone(_ topics: [String], of origin: Origin) {
        for topic in topics { gate.valueIsGone(on: topic) }
        forget(origin, topics: topics)
    }
}
