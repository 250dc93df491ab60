// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The part of the bridge that a ``ValueAudit`` works for. Called on the loop's thread.
protocol ValueAuditDelegate: AnyObject {
    /// The hosts of the realm.
    var hosts: HostTable { get }
    /// The names that are subscribed to.
    var wanted: WantedNames { get }
    /// The service is to be asked for all its values, which ``ValueAudit/answered(_:)`` gets.
    func askForValues()
    /// The broker has nothing on these topics of a host, and the session has values.
    func valuesAreGone(_ topics: [String], of origin: Origin)
}

/// Finds values of other hosts that the session still has, and their hosts do not: they were removed while the broker did not
/// know this bridge, or while nobody here wanted their names, or the broker has forgotten or dropped the removal (R1).
///
/// There are doubts of a host: of all after each connection to a broker without a session, after new subscriptions and after
/// dropped messages; of one when it says that the broker had lacked its values. A host that is in doubt is looked at, at most
/// once a minute, when it has said that the broker has all its values (``HostTable/Host/mark``): the session's values of it that
/// the broker has not shown since it could have removed them unseen are asked for by their topics, and those that it does not
/// show are removed. The values of a host that is there again are fetched before, as what was to come here may be lost.
final class ValueAudit {
    private enum Time {
        /// Doubts that come in a row are one, in milliseconds.
        static let calm: UInt32 = 5_000
        /// The word of a host from before this connection is trusted after so long, in milliseconds: a broker that has forgotten
        /// something has ended the host's connection, too.
        static let trust: UInt32 = 95_000
        /// The pause between two looks at a host: each time twice as long while the broker does not show what it has.
        static let minPause = Duration.seconds(60)
        static let maxPause = Duration.seconds(3_600)
    }

    /// Topics that are asked for at once, at first. Of many a broker may drop some for want of room; those are asked for again,
    /// ``RetainedQueries/together`` at once.
    private static let together = 512
    /// The maximum of filters by which values are fetched at once, where one host does not take more.
    private static let fetchedTogether = 512
    /// The maximum of topics of one machine in a look. Those that are left are its next one's.
    private static let maxChecked = 1_024
    /// The maximum of topics that are remembered. Others are asked for.
    private static let maxSeen = 131_072

    /// The word of a host on this connection.
    private enum Word {
        case none
        /// It has said something: the broker may have restored that.
        case some
        /// Behind that it has said that the broker has all its values.
        case certain
    }

    /// The knowledge of a host.
    private struct Watch {
        var word = Word.none
        /// Whether its bridge has another run than before, without an end.
        var hasRestarted = false
        /// Its last mark, and the run that it had then.
        var mark: String?
        var run: String?
        var mustFetch = false
        /// The number of the last doubt of it alone, and that of the last one that a look has answered.
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

    /// A look at hosts that is under way.
    private final class Look {
        enum Phase {
            case fetching
            /// The service is asked for the values that it has.
            case asking
            case checking
        }

        var phase = Phase.fetching
        /// With the marks that they had.
        let hosts: [Origin: String]
        let fetched: [Origin]
        /// The number of the last doubt before it.
        let doubt: UInt64
        /// The values that the session has and the broker has not shown.
        var missing: [String: Candidate] = [:]
        /// Hosts of which there are more of them, and those of which the broker has not shown what it has.
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
    /// The number of the last doubt, and that of the last one of all hosts.
    private var lastDoubt: UInt64 = 1
    private var doubtOfAll: UInt64 = 1
    /// The hash values of the topics on which the broker has, by all that it has sent on this connection.
    private var seen: Set<Int> = []
    /// The packets that the broker has not answered: what comes before the end of a subscription may be from before it.
    private var unsubscribing: Set<PacketID> = []
    private var isConnected = false
    /// Until it is over no word from before this connection is trusted.
    private var trustTimer: EventSource?
    private var timer: EventSource?
    private var look: Look?
    private let start: SuspendingClock.Instant
    /// Hosts of which there are values on other topics than a bridge's: nobody knows on which.
    var irregular = IrregularHosts()

    init(realm: String, broker: BrokerLink, context: MainContext) {
        self.realm = realm
        self.broker = broker
        self.context = context
        start = context.now
    }

    private var hosts: HostTable { delegate?.hosts ?? HostTable() }
    private var wanted: WantedNames { delegate?.wanted ?? WantedNames() }

    // MARK: The connection

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

    /// The broker has answered the end of a subscription.
    func answeredUnsubscription(_ id: PacketID) { unsubscribing.remove(id) }

    // MARK: Shown values

    /// The broker has sent a retained message.
    ///
    /// - Parameter isWanted: whether it is one of a subscription.
    func take(_ publication: Publication, isWanted: Bool) {
        let topic = publication.topic.hashValue
        guard !publication.payload.isEmpty else {
            seen.remove(topic)
            return
        }
        // A value of the session's queue is old, and the end of it may have had no room there.
        let isOld = broker.mayBeQueued && !BrokerLink.isOfQuery(publication)
        // Of a broker without identifiers it may be the answer.
        if !isOld || publication.subscriptions.isEmpty { look?.missing[publication.topic] = nil }
        if !isOld, isWanted, unsubscribing.isEmpty, seen.count < Self.maxSeen { seen.insert(topic) }
    }

    // MARK: Doubts

    /// Something is new about a host.
    func follow(_ origin: Origin, _ host: HostTable.Host, before: HostTable.Host?) {
        guard hosts[origin] != nil else { return watches[origin] = nil }
        var watch = watches[origin] ?? Watch()
        if let before, before.isOnline, host.isOnline, before.run != host.run { watch.hasRestarted = true }
        if host.isOnline, let mark = host.mark {
            if watch.word == .some { watch.word = .certain }
            let isSameRun = watch.run == host.run
            if mark != watch.mark || !isSameRun {
                // The broker had forgotten something of it: so it may have done with what was to come here. Or its bridge is
                // another one, and the one before did not end in order.
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

    /// A host is not known any more.
    func forget(_ origin: Origin) {
        watches[origin] = nil
        irregular.remove(origin)
    }

    /// Whether values may be missing that are still to be fetched.
    var mustFetch: Bool { watches.values.contains { $0.mustFetch || $0.hasRestarted } }

    /// Any host may have ended values unseen.
    func doubt() {
        lastDoubt += 1
        doubtOfAll = lastDoubt
        goOnSoon()
    }

    /// The broker has dropped messages: also of those that it has shown there may be none.
    func doubtAfterDrops() {
        seen = []
        doubt()
    }

    /// It may be known of more hosts whether they are there.
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
        // An answer of the broker goes on with it.
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
        // Those that have waited longest: with ever new marks a host does not get ahead of others.
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

    /// The service has answered.
    ///
    /// - Parameter values: all that it has.
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

    /// Has the broker show topics, part by part, and those that it does not show a second time.
    private func check(_ rest: ArraySlice<String>, atOnce size: Int, _ look: Look) {
        guard look === self.look else { return }
        guard !rest.isEmpty else {
            guard size > RetainedQueries.together, !look.missing.isEmpty else { return end(look) }
            return check(look.missing.keys.sorted()[...], atOnce: RetainedQueries.together, look)
        }
        let asked = rest.prefix(size)
        broker.showRetained(Array(asked), usesCanary: true) { [weak self] answer in
            for topic in answer.refused { look.missing[topic] = nil }
            // Those that are asked for once more may be known then.
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
