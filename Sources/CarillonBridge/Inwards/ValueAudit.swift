// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The part of the bridge that uses a ``ValueAudit``. Called on the loop's thread.
protocol ValueAuditDelegate: AnyObject {
    /// The hosts of the realm.
    var hosts: HostTable { get }
    /// The subscribed names.
    var wanted: WantedNames { get }
    /// Asks the service for all its values, which ``ValueAudit/answered(_:)`` receives.
    func askForValues()
    /// Called when the broker has nothing on these topics of a host, and the session has values.
    func valuesAreGone(_ topics: [String], of origin: Origin)
}

/// Reconciles the session's values of other hosts with the broker, and removes values that the broker no longer retains
/// (R1). The bridge misses a removal while it is offline or not subscribed to the name, and when the broker loses it.
///
/// *When*: a host has to be checked (it is in doubt) after a connection without a session at the broker, after new
/// subscriptions and after dropped messages; then all hosts are. One host has to be checked when it announces that the
/// broker had lacked its values. A check begins when the host has announced that the broker has all its values
/// (``HostTable/Host/mark``), and at most once a minute for each host.
///
/// *How*:
/// 1. If publications of the host may be lost, fetch its retained messages.
/// 2. Ask the service for its values of the host.
/// 3. Query the broker for the values that it has not sent on this connection.
/// 4. Remove the values that the broker does not have.
final class ValueAudit {
    private enum Time {
        /// The pause that merges doubts in a row, in milliseconds.
        static let calm: UInt32 = 5_000
        /// The time after which a host's message from before this connection counts, in milliseconds: a broker that has
        /// forgotten something has ended the host's connection, too.
        static let trust: UInt32 = 95_000
        /// The pause between two looks at a host; it doubles each time while the broker does not show its messages.
        static let minPause = Duration.seconds(60)
        static let maxPause = Duration.seconds(3_600)
    }

    /// The number of topics that are requested at once in the first round. Of many topics a broker may drop some for
    /// lack of buffer space; these are requested again, ``RetainedQueries/together`` at once.
    private static let together = 512
    /// The maximum number of filters by which values are fetched at once, unless one host needs more.
    private static let fetchedTogether = 512
    /// The maximum number of topics of one machine in a look. The remaining ones belong to its next look.
    private static let maxChecked = 1_024
    /// The maximum number of remembered topics. Other topics are requested.
    private static let maxSeen = 131_072

    /// The certainty of a host's messages on this connection.
    private enum Word {
        case none
        /// The host has published its presence, which the broker may have restored from an old state.
        case some
        /// The host has then said that the broker has all its values.
        case certain
    }

    /// The state of a host.
    private struct Watch {
        var word = Word.none
        /// Whether its bridge has another run than before, although the earlier one did not go offline.
        var hasRestarted = false
        /// The last mark of the host, and its run at that time.
        var mark: String?
        var run: String?
        var mustFetch = false
        /// The number of the last doubt of this host alone; `answered` is the number of the last doubt that a look has
        /// answered.
        var doubt: UInt64 = 0
        var answered: UInt64 = 0
        var lookedAt: SuspendingClock.Instant?
        var pause = Time.minPause
    }

    private struct Candidate {
        let origin: Origin
        let name: String
        let topic: String
    }

    /// A look at hosts that is in progress.
    private final class Look {
        enum Phase {
            case fetching
            /// The service is asked for its values.
            case asking
            case checking
        }

        var phase = Phase.fetching
        /// The hosts, with their marks at the beginning.
        let hosts: [Origin: String]
        let fetched: [Origin]
        /// The number of the last doubt before the look.
        let doubt: UInt64
        /// The values that the session has and the broker has not shown.
        var missing: [String: Candidate] = [:]
        /// The hosts with more missing values than the limit; `unknown` has the hosts whose values the broker has not
        /// shown completely.
        var unfinished: Set<Origin> = []
        var unknown: Set<Origin> = []

        init(_ hosts: [Origin: String], fetched: [Origin], doubt: UInt64) {
            self.hosts = hosts
            self.fetched = fetched
            self.doubt = doubt
        }
    }

    private let realm: String
    private let broker: BrokerLink
    private let context: MainContext
    weak var delegate: (any ValueAuditDelegate)?
    private var watches: [Origin: Watch] = [:]
    /// The number of the last doubt; `doubtOfAll` is the number of the last doubt of all hosts.
    private var lastDoubt: UInt64 = 1
    private var doubtOfAll: UInt64 = 1
    /// The hash values of the topics on which the broker has a value, by the messages of this connection.
    private var seen: Set<Int> = []
    /// The unanswered unsubscriptions: a message that arrives before the answer may be older than the unsubscription.
    private var unsubscribing: Set<PacketID> = []
    private var isConnected = false
    /// While this timer runs, no message from before this connection counts.
    private var trustTimer: EventSource?
    private var timer: EventSource?
    private var look: Look?
    private let start: SuspendingClock.Instant
    /// The hosts with values on topics that no bridge uses, so that their topics are unknown.
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

    func connected(sessionPresent: Bool) {
        isConnected = true
        for origin in watches.keys {
            watches[origin]!.word = .none
        }
        trustTimer = .once(milliseconds: Time.trust, on: context) { [unowned self] in
            trustTimer = nil
            goOn()
        }
        if !sessionPresent { doubt() }
    }

    func connectionEnded() {
        isConnected = false
        (timer, trustTimer) = (nil, nil)
        (seen, unsubscribing) = ([], [])
        for origin in look?.fetched ?? [] { watches[origin]?.mustFetch = true }
        look = nil
    }

    func unsubscribed(by id: PacketID) {
        unsubscribing.insert(id)
        seen = []
    }

    /// Handles the broker's answer to an unsubscription.
    func answeredUnsubscription(_ id: PacketID) { unsubscribing.remove(id) }

    // MARK: Shown values

    /// Handles a retained message of the broker.
    ///
    /// - Parameter isWanted: whether it belongs to a subscription.
    func take(_ publication: Publication, isWanted: Bool) {
        let topic = publication.topic.hashValue
        guard !publication.payload.isEmpty else {
            seen.remove(topic)
            return
        }
        // A value from the session's queue is old, and its removal may not have fitted into the queue.
        let isOld = broker.mayBeQueued && !BrokerLink.isOfQuery(publication)
        // From a broker without subscription identifiers it may be the answer to a query.
        if !isOld || publication.subscriptions.isEmpty { look?.missing[publication.topic] = nil }
        if !isOld, isWanted, unsubscribing.isEmpty, seen.count < Self.maxSeen { seen.insert(topic) }
    }

    // MARK: Doubts

    /// Follows a change of a host.
    func follow(_ origin: Origin, _ host: HostTable.Host, before: HostTable.Host?) {
        guard hosts[origin] != nil else { return watches[origin] = nil }
        var watch = watches[origin] ?? Watch()
        if let before, before.isOnline, host.isOnline, before.run != host.run { watch.hasRestarted = true }
        if host.isOnline, let mark = host.mark {
            if watch.word == .some { watch.word = .certain }
            let isSameRun = watch.run == host.run
            if mark != watch.mark || !isSameRun {
                // With the same run, the broker had lacked values of the host, and perhaps messages for this bridge.
                // With another run, the bridge before may not have ended in order.
                if watch.hasRestarted || watch.mark != nil && isSameRun { watch.mustFetch = true }
                watch.hasRestarted = false
                lastDoubt += 1
                watch.doubt = lastDoubt
            }
            (watch.mark, watch.run) = (mark, host.run)
        }
        if watch.word == .none { watch.word = .some }
        watches[origin] = watch
        goOnSoon()
    }

    /// Forgets a host.
    func forget(_ origin: Origin) {
        watches[origin] = nil
        irregular.remove(origin)
    }

    /// Whether values that are still to be fetched may be missing.
    var mustFetch: Bool { watches.values.contains { $0.mustFetch || $0.hasRestarted } }

    /// Doubts all hosts: any of them may have ended values unseen.
    func doubt() {
        lastDoubt += 1
        doubtOfAll = lastDoubt
        goOnSoon()
    }

    /// Doubts all hosts after dropped messages: the broker may have lost even values that it has shown.
    func doubtAfterDrops() {
        seen = []
        doubt()
    }

    /// Continues, because the presence of more hosts may be known.
    func hostsAreConfirmed() { goOnSoon() }

    private func isDue(_ watch: Watch) -> Bool { watch.answered < max(watch.doubt, doubtOfAll) }

    // MARK: Looks

    private func goOnSoon() {
        guard isConnected, look == nil, timer == nil else { return }
        wait(Time.calm)
    }

    private func wait(_ milliseconds: UInt32) {
        timer = .once(milliseconds: milliseconds, on: context) { [unowned self] in
            timer = nil
            goOn()
        }
    }

    private func goOn() {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.endsUnseen) { return }
        #endif
        // During a look, the broker's answer continues it.
        guard isConnected, look == nil else { return }
        let table = hosts
        var due: [Origin: String] = [:]
        var rest: Duration?
        for (origin, host) in table.hosts {
            let watch = watches[origin] ?? Watch()
            guard host.isOnline, let mark = host.mark, isDue(watch), !table.unconfirmed.contains(origin),
                watch.word == .certain && !broker.mayBeQueued || trustTimer == nil
            else { continue }
            let left = watch.lookedAt.map { watch.pause - (context.now - $0) } ?? .zero
            if left > .zero { rest = min(rest ?? left, left) } else { due[origin] = mark }
        }
        if !due.isEmpty {
            begin(due)
        } else if let rest, timer == nil {
            wait(UInt32((rest / .milliseconds(1)).rounded(.up)))
        }
    }

    private func begin(_ due: [Origin: String]) {
        timer = nil
        var (looked, fetched, filters) = (due, [Origin](), [String]())
        // Hosts that have waited longest come first: a host can't overtake others with ever new marks.
        func order(_ origin: Origin) -> (Duration, String) {
            (watches[origin]?.lookedAt.map { $0 - start } ?? .seconds(-1), origin.text)
        }
        for origin in due.keys.sorted(by: { order($0) < order($1) }) where watches[origin]?.mustFetch == true {
            let own = wanted.filters(of: origin, in: realm)
            guard filters.isEmpty || filters.count + own.count <= Self.fetchedTogether else {
                looked[origin] = nil
                continue
            }
            watches[origin]!.mustFetch = false
            fetched.append(origin)
            filters += own.sorted()
        }
        let look = Look(looked, fetched: fetched, doubt: lastDoubt)
        self.look = look
        guard !filters.isEmpty else { return askService(look) }
        broker.showRetained(filters, usesCanary: true) { [weak self] answer in
            if !answer.isComplete {
                look.unknown.formUnion(fetched)
                for origin in fetched { self?.watches[origin]?.mustFetch = true }
            }
            self?.askService(look)
        }
    }

    private func askService(_ look: Look) {
        guard look === self.look else { return }
        look.phase = .asking
        delegate?.askForValues()
    }

    /// Handles the answer of the service.
    ///
    /// - Parameter values: all values that the service has.
    func answered(_ values: some Sequence<FollowValues.Listed>) {
        guard let look, look.phase == .asking else { return }
        look.phase = .checking
        let wanted = wanted
        var counts: [String: Int] = [:]
        for value in values {
            guard let origin = Origin(host: value.host ?? "", user: value.user ?? ""), look.hosts[origin] != nil,
                !irregular.contains(origin), wanted.contains(value.name)
            else { continue }
            let topic = BridgeTopic(value: value.name, value.object, of: origin).text(in: realm)
            guard !seen.contains(topic.hashValue) else { continue }
            guard counts[origin.host, default: 0] < Self.maxChecked else {
                look.unfinished.insert(origin)
                continue
            }
            counts[origin.host, default: 0] += 1
            look.missing[topic] = Candidate(origin: origin, name: value.name, topic: topic)
        }
        check(look.missing.keys.sorted()[...], atOnce: Self.together, look)
    }

    /// Has the broker show topics, part by part, and a second time the topics that it did not show.
    private func check(_ rest: ArraySlice<String>, atOnce size: Int, _ look: Look) {
        guard look === self.look else { return }
        guard !rest.isEmpty else {
            guard size > RetainedQueries.together, !look.missing.isEmpty else { return end(look) }
            return check(look.missing.keys.sorted()[...], atOnce: RetainedQueries.together, look)
        }
        let asked = rest.prefix(size)
        broker.showRetained(Array(asked), usesCanary: true) { [weak self] answer in
            for topic in answer.refused { look.missing[topic] = nil }
            // Topics that are requested once more may be known then.
            if !answer.isComplete, size == RetainedQueries.together {
                for topic in asked {
                    if let candidate = look.missing.removeValue(forKey: topic) { look.unknown.insert(candidate.origin) }
                }
            }
            self?.check(rest.dropFirst(asked.count), atOnce: size, look)
        }
    }

    private func end(_ look: Look) {
        self.look = nil
        let table = hosts
        for (origin, mark) in look.hosts {
            guard let host = table[origin] else { continue }
            watches[origin, default: Watch()].lookedAt = context.now
            guard !look.unknown.contains(origin) else {
                watches[origin]!.pause = min(watches[origin]!.pause * 2, Time.maxPause)
                continue
            }
            watches[origin]!.pause = Time.minPause
            if host.isOnline, host.mark == mark, !look.unfinished.contains(origin) {
                watches[origin]!.answered = look.doubt
            }
        }
        for (origin, gone) in Dictionary(grouping: look.missing.values, by: \.origin).sorted(by: {
            $0.key.text < $1.key.text
        }) {
            guard table[origin]?.isOnline == true, table[origin]?.mark == look.hosts[origin] else { continue }
            let topics = gone.filter { wanted.contains($0.name) }.map(\.topic).sorted()
            guard !topics.isEmpty else { continue }
            Log.info("\(topics.count) values of \(origin.text) are gone")
            delegate?.valuesAreGone(topics, of: origin)
        }
        goOnSoon()
    }
}
