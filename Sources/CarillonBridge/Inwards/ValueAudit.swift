// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The owner of a ``ValueAudit``: ``Importer``. Called on the loop's thread.
protocol ValueAuditDelegate: AnyObject {
    /// The presence of the hosts of the realm.
    var hosts: HostTable { get }
    /// The subscribed names.
    var wanted: WantedNames { get }
    /// Asks the service for its list of values, which ``ValueAudit/answered(_:)`` receives.
    func askForValues()
    /// Called when the broker retains nothing on these topics of a host, and the session has values of them.
    func valuesAreGone(_ topics: [String], of origin: Origin)
}

/// Compares the session's retained values of other hosts with the broker, and removes values that the broker no longer
/// retains (R1). The bridge misses the removal of a value while it is offline or not subscribed to the name, and when
/// the broker drops the message. ``Importer`` uses the audit.
///
/// Events request an audit:
/// - of all hosts: a connection for which the broker had no session, new subscriptions, dropped messages;
/// - of one host: its announcement that the broker had lacked some of its values.
///
/// A round audits all hosts for which a request is open. A host takes part at most once a minute, and only after it has
/// announced, by a token, that the broker has all its values (``HostTable/Host/valuesToken``). Steps of a round:
/// 1. If publications of the host may be lost, fetch its retained messages.
/// 2. Ask the service for its values of the hosts.
/// 3. Query the broker for those values that it has not sent on this connection.
/// 4. Remove the values that the broker does not have.
final class ValueAudit {
    private enum Time {
        /// The pause before a round, which merges several requests, in milliseconds.
        static let calm: UInt32 = 5_000
        /// The time after which a host's announcement from before this connection counts, in milliseconds. A broker
        /// that has forgotten something has ended the host's connection, too, so that within this time the host
        /// connects and announces itself again.
        static let trust: UInt32 = 95_000
        /// The pause between two rounds for a host. It doubles each time the broker does not show its messages.
        static let minPause = Duration.seconds(60)
        /// The maximum of that pause.
        static let maxPause = Duration.seconds(3_600)
    }

    /// The number of topics in a query of the first attempt. For so many topics a broker may drop some messages for
    /// lack of buffer space; these topics are queried again in groups of ``RetainedQueries/batchSize``.
    private static let batchSize = 512
    /// The maximum number of filters by which a round fetches values, unless a single host needs more.
    private static let maxFetchedFilters = 512
    /// The maximum number of topics of one machine in a round. The remaining ones belong to its next round.
    private static let maxChecked = 1_024
    /// The maximum number of remembered topics that the broker has shown. Further topics are queried.
    private static let maxSeen = 131_072

    /// The evidence of this connection that the broker has all values of a host.
    private enum Evidence {
        /// No presence message has arrived.
        case none
        /// A presence message has arrived, which the broker may have restored from an old state.
        case some
        /// A further one has arrived, with the token for complete values, so it is not merely restored.
        case certain
    }

    /// The state of a host.
    private struct HostState {
        var evidence = Evidence.none
        /// Whether its bridge has begun a new run without going offline before, so that the earlier one may have been
        /// killed.
        var hasRestarted = false
        /// The last token of the host.
        var valuesToken: String?
        /// The run of the host at that time.
        var run: String?
        /// Whether publications of the host may be lost, so that its values have to be fetched.
        var mustFetch = false
        /// The number of the last request for this host alone.
        var request: UInt64 = 0
        /// The number of the last request that a completed round has answered.
        var answered: UInt64 = 0
        /// The end of its last round.
        var lastRoundEnd: SuspendingClock.Instant?
        /// The pause before its next round.
        var pause = Time.minPause
    }

    /// A value that the session has and the broker may not have.
    private struct Candidate {
        let origin: Origin
        let name: String
        let topic: String
    }

    /// A round that is in progress.
    private final class Round {
        enum Phase {
            /// The retained messages of some hosts are fetched.
            case fetching
            /// The service is asked for its values.
            case asking
            /// The broker is queried for the values.
            case checking
        }

        var phase = Phase.fetching
        /// The audited hosts, with their tokens at the beginning of the round.
        let hosts: [Origin: String]
        /// The hosts whose retained messages are fetched.
        let fetched: [Origin]
        /// The number of the last request before the round.
        let request: UInt64
        /// The values that the session has and the broker has not shown, by topic.
        var missing: [String: Candidate] = [:]
        /// The hosts with more such values than the limit.
        var unfinished: Set<Origin> = []
        /// The hosts whose values the broker has not shown completely.
        var unknown: Set<Origin> = []

        init(_ hosts: [Origin: String], fetched: [Origin], request: UInt64) {
            self.hosts = hosts
            self.fetched = fetched
            self.request = request
        }
    }

    private let realm: String
    private let broker: BrokerLink
    private let context: MainContext
    weak var delegate: (any ValueAuditDelegate)?
    /// The state of each host.
    private var hostStates: [Origin: HostState] = [:]
    /// The number of the last request.
    private var lastRequest: UInt64 = 1
    /// The number of the last request for all hosts.
    private var lastRequestOfAll: UInt64 = 1
    /// The hash values of the topics on which the broker has shown a value on this connection.
    private var seen: Set<Int> = []
    /// The unanswered unsubscriptions. A message that arrives before the answer may belong to an ended subscription, so
    /// that later changes of its value do not arrive.
    private var unsubscribing: Set<PacketID> = []
    private var isConnected = false
    /// Runs for ``Time/trust`` after a connection.
    private var trustTimer: EventSource?
    /// Runs before the next round.
    private var timer: EventSource?
    /// The present round.
    private var round: Round?
    /// The creation time, the origin of the times by which hosts are ordered.
    private let start: SuspendingClock.Instant
    /// The hosts with values on topics that no bridge uses. Their topics can't be derived from name and object, so they
    /// are not audited.
    var irregular = IrregularHosts()

    init(realm: String, broker: BrokerLink, context: MainContext) {
        self.realm = realm
        self.broker = broker
        self.context = context
        start = context.now
    }

    private var hosts: HostTable { delegate?.hosts ?? HostTable() }
    private var wanted: WantedNames { delegate?.wanted ?? WantedNames() }

    // MARK: Connection

    /// Handles a new connection.
    ///
    /// - Parameter sessionPresent: whether the broker has kept the session, and so has queued removals.
    func connected(sessionPresent: Bool) {
        isConnected = true
        for origin in hostStates.keys {
            hostStates[origin]!.evidence = .none
        }
        trustTimer = .once(milliseconds: Time.trust, on: context) { [unowned self] in
            trustTimer = nil
            goOn()
        }
        if !sessionPresent { request() }
    }

    /// Ends the round. Unfinished fetches belong to the next one.
    func connectionEnded() {
        isConnected = false
        (timer, trustTimer) = (nil, nil)
        (seen, unsubscribing) = ([], [])
        for origin in round?.fetched ?? [] { hostStates[origin]?.mustFetch = true }
        round = nil
    }

    /// Notes an unsubscription: from now on, removals on its topics do not arrive.
    func unsubscribed(by id: PacketID) {
        unsubscribing.insert(id)
        seen = []
    }

    /// Handles the broker's answer to an unsubscription.
    func answeredUnsubscription(_ id: PacketID) { unsubscribing.remove(id) }

    // MARK: Shown values

    /// Notes that the broker has shown a retained message, or the removal of one.
    ///
    /// - Parameter isWanted: whether the name is wanted, so that later changes also arrive.
    func take(_ publication: Publication, isWanted: Bool) {
        let topic = publication.topic.hashValue
        guard !publication.payload.isEmpty else {
            seen.remove(topic)
            return
        }
        // A value that the broker has queued for the session may be old, and the queue may have lacked space for its
        // removal.
        let isOld = broker.mayBeQueued && !BrokerLink.isOfQuery(publication)
        // From a broker without subscription identifiers the message may be the answer to a query, so the value counts
        // as present.
        if !isOld || publication.subscriptions.isEmpty { round?.missing[publication.topic] = nil }
        if !isOld, isWanted, unsubscribing.isEmpty, seen.count < Self.maxSeen { seen.insert(topic) }
    }

    // MARK: Requests

    /// Follows a change of a host's presence. A new token requests an audit of the host.
    func follow(_ origin: Origin, _ host: HostTable.Host, before: HostTable.Host?) {
        guard hosts[origin] != nil else { return hostStates[origin] = nil }
        // The changed state of the host, which is stored at the end.
        var watch = hostStates[origin] ?? HostState()
        if let before, before.isOnline, host.isOnline, before.run != host.run { watch.hasRestarted = true }
        if host.isOnline, let valuesToken = host.valuesToken {
            if watch.evidence == .some { watch.evidence = .certain }
            let isSameRun = watch.run == host.run
            if valuesToken != watch.valuesToken || !isSameRun {
                // A new token in the same run: the broker had lacked values of the host, and perhaps also messages for
                // this bridge. A new run of a host that did not go offline: its earlier process was killed, perhaps
                // with unsent messages.
                if watch.hasRestarted || watch.valuesToken != nil && isSameRun { watch.mustFetch = true }
                watch.hasRestarted = false
                lastRequest += 1
                watch.request = lastRequest
            }
            (watch.valuesToken, watch.run) = (valuesToken, host.run)
        }
        if watch.evidence == .none { watch.evidence = .some }
        hostStates[origin] = watch
        goOnSoon()
    }

    /// Forgets a host.
    func forget(_ origin: Origin) {
        hostStates[origin] = nil
        irregular.remove(origin)
    }

    /// Whether values of a host still have to be fetched, because some may be missing.
    var mustFetch: Bool { hostStates.values.contains { $0.mustFetch || $0.hasRestarted } }

    /// Requests an audit of all hosts: any of them may have removed values without notice.
    func request() {
        lastRequest += 1
        lastRequestOfAll = lastRequest
        goOnSoon()
    }

    /// Requests an audit of all hosts after dropped messages. The broker may have lost even values that it has shown
    /// before.
    func requestAfterDrops() {
        seen = []
        request()
    }

    /// Continues, because the presence of more hosts may be known.
    func hostsAreConfirmed() { goOnSoon() }

    /// Whether a request for the host is open.
    private func isDue(_ watch: HostState) -> Bool { watch.answered < max(watch.request, lastRequestOfAll) }

    // MARK: Rounds

    /// Schedules a round after a short pause.
    private func goOnSoon() {
        guard isConnected, round == nil, timer == nil else { return }
        wait(Time.calm)
    }

    /// Schedules a round.
    private func wait(_ milliseconds: UInt32) {
        timer = .once(milliseconds: milliseconds, on: context) { [unowned self] in
            timer = nil
            goOn()
        }
    }

    /// Begins a round with all hosts that may take part now, or waits for the first that may. A host may take part if
    /// all of this is true:
    /// - It is online, has a token, and has an open request.
    /// - Its presence is of this connection, and not only of an earlier one (``HostTable/unconfirmed``).
    /// - Its token is certain and the broker sends no messages from its queue, or ``Time/trust`` is over.
    /// - The pause since its last round is over.
    private func goOn() {
        // A fault of test builds (E7).
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.unseenEndsMissed) { return }
        #endif
        // The broker's answer continues the round that is in progress.
        guard isConnected, round == nil else { return }
        let table = hosts
        var due: [Origin: String] = [:]
        var rest: Duration?
        for (origin, host) in table.hosts {
            let watch = hostStates[origin] ?? HostState()
            guard host.isOnline, let valuesToken = host.valuesToken, isDue(watch), !table.unconfirmed.contains(origin),
                watch.evidence == .certain && !broker.mayBeQueued || trustTimer == nil
            else { continue }
            let left = watch.lastRoundEnd.map { watch.pause - (context.now - $0) } ?? .zero
            if left > .zero { rest = min(rest ?? left, left) } else { due[origin] = valuesToken }
        }
        if !due.isEmpty {
            begin(due)
        } else if let rest, timer == nil {
            wait(UInt32((rest / .milliseconds(1)).rounded(.up)))
        }
    }

    /// Begins a round: step 1, the fetch of retained messages.
    ///
    /// - Parameter due: the hosts, with their tokens.
    private func begin(_ due: [Origin: String]) {
        timer = nil
        // The audited hosts (`looked`), the hosts whose retained messages are fetched, and the filters of the fetch. A
        // host whose filters exceed the limit of a round belongs to the next round.
        var (looked, fetched, filters) = (due, [Origin](), [String]())
        // The hosts that have waited longest come first. Otherwise a host with ever new tokens would delay others.
        func order(_ origin: Origin) -> (Duration, String) {
            (hostStates[origin]?.lastRoundEnd.map { $0 - start } ?? .seconds(-1), origin.text)
        }
        for origin in due.keys.sorted(by: { order($0) < order($1) }) where hostStates[origin]?.mustFetch == true {
            let own = wanted.filters(of: origin, in: realm)
            guard filters.isEmpty || filters.count + own.count <= Self.maxFetchedFilters else {
                looked[origin] = nil
                continue
            }
            hostStates[origin]!.mustFetch = false
            fetched.append(origin)
            filters += own.sorted()
        }
        let round = Round(looked, fetched: fetched, request: lastRequest)
        self.round = round
        guard !filters.isEmpty else { return askService(round) }
        broker.showRetained(filters, usesCanary: true) { [weak self] answer in
            if !answer.isComplete {
                round.unknown.formUnion(fetched)
                for origin in fetched { self?.hostStates[origin]?.mustFetch = true }
            }
            self?.askService(round)
        }
    }

    /// Step 2: asks the service for its values.
    private func askService(_ round: Round) {
        guard round === self.round else { return }
        round.phase = .asking
        delegate?.askForValues()
    }

    /// Handles the service's list of values: finds the values that the broker has not shown.
    ///
    /// - Parameter values: all values that the service has.
    func answered(_ values: some Sequence<FollowValues.Listed>) {
        guard let round, round.phase == .asking else { return }
        round.phase = .checking
        let wanted = wanted
        var counts: [String: Int] = [:]
        for value in values {
            guard let origin = Origin(host: value.host ?? "", user: value.user ?? ""), round.hosts[origin] != nil,
                !irregular.contains(origin), wanted.contains(value.name)
            else { continue }
            let topic = BridgeTopic(value: value.name, value.object, of: origin).text(in: realm)
            guard !seen.contains(topic.hashValue) else { continue }
            guard counts[origin.host, default: 0] < Self.maxChecked else {
                round.unfinished.insert(origin)
                continue
            }
            counts[origin.host, default: 0] += 1
            round.missing[topic] = Candidate(origin: origin, name: value.name, topic: topic)
        }
        check(round.missing.keys.sorted()[...], atOnce: Self.batchSize, round)
    }

    /// Step 3: has the broker show topics, group by group. Topics that it did not show are queried a second time, in
    /// smaller groups.
    ///
    /// - Parameters:
    ///   - rest: the topics that are not queried yet.
    ///   - size: the number of topics in a query.
    private func check(_ rest: ArraySlice<String>, atOnce size: Int, _ round: Round) {
        guard round === self.round else { return }
        guard !rest.isEmpty else {
            guard size > RetainedQueries.batchSize, !round.missing.isEmpty else { return end(round) }
            return check(round.missing.keys.sorted()[...], atOnce: RetainedQueries.batchSize, round)
        }
        let asked = rest.prefix(size)
        broker.showRetained(Array(asked), usesCanary: true) { [weak self] answer in
            for topic in answer.refused { round.missing[topic] = nil }
            // After the second attempt it is unknown whether the broker has these topics.
            if !answer.isComplete, size == RetainedQueries.batchSize {
                for topic in asked {
                    if let candidate = round.missing.removeValue(forKey: topic) {
                        round.unknown.insert(candidate.origin)
                    }
                }
            }
            self?.check(rest.dropFirst(asked.count), atOnce: size, round)
        }
    }

    /// Step 4: removes the values that the broker has not shown, and ends the round. A host that has gone offline or
    /// announced another token meanwhile keeps its values until its next round.
    private func end(_ round: Round) {
        self.round = nil
        let table = hosts
        for (origin, valuesToken) in round.hosts {
            guard let host = table[origin] else { continue }
            hostStates[origin, default: HostState()].lastRoundEnd = context.now
            guard !round.unknown.contains(origin) else {
                hostStates[origin]!.pause = min(hostStates[origin]!.pause * 2, Time.maxPause)
                continue
            }
            hostStates[origin]!.pause = Time.minPause
            if host.isOnline, host.valuesToken == valuesToken, !round.unfinished.contains(origin) {
                hostStates[origin]!.answered = round.request
            }
        }
        for (origin, gone) in Dictionary(grouping: round.missing.values, by: \.origin).sorted(by: {
            $0.key.text < $1.key.text
        }) {
            guard table[origin]?.isOnline == true, table[origin]?.valuesToken == round.hosts[origin] else { continue }
            let topics = gone.filter { wanted.contains($0.name) }.map(\.topic).sorted()
            guard !topics.isEmpty else { continue }
            Log.info("\(topics.count) values of \(origin.text) are gone")
            delegate?.valuesAreGone(topics, of: origin)
        }
        goOnSoon()
    }
}
