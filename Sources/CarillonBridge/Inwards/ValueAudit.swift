// SPDX-License-Identifier: Apache-2.0
import MQTT
import MainLoop
import NotificationWire

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
        /// The minimum between two looks at a host.
        static let betweenLooks = Duration.seconds(60)
    }

    /// Topics that are asked for at once, at first. Of many a broker may drop some for want of room; those are asked for again,
    /// ``RetainedQueries/together`` at once.
    private static let together = 512
    /// The maximum of filters by which values are fetched at once, where one host does not take more.
    private static let fetchedTogether = 512
    /// The maximum of topics that are remembered. Others are asked for.
    private static let maxSeen = 131_072

    /// The knowledge of a host.
    private struct Watch {
        /// Whether it has said something on this connection, and behind that that the broker has all its values.
        var hasSpoken = false
        var isCertain = false
        /// Whether its bridge has another run than before, without an end.
        var hasRestarted = false
        var mustFetch = false
        /// The number of the last doubt of it alone, and that of the last one that a look has answered.
        var doubt: UInt64 = 0
        var answered: UInt64 = 0
        var lookedAt: SuspendingClock.Instant?
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
        /// The topics that are asked for, and that the broker has not shown.
        var unseen: [String: Candidate] = [:]

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
    private var subscribing: Set<PacketID> = []
    private var unsubscribing: Set<PacketID> = []
    private var isConnected = false
    private var isTrusting = false
    private var trustTimer: EventSource?
    private var timer: EventSource?
    private var look: Look?
    /// Hosts of which there are values on other topics than a bridge's: nobody knows on which.
    var irregular = IrregularHosts()

    init(realm: String, broker: BrokerLink, context: MainContext) {
        self.realm = realm
        self.broker = broker
        self.context = context
    }

    private var hosts: HostTable { delegate?.hosts ?? HostTable() }
    private var wanted: WantedNames { delegate?.wanted ?? WantedNames() }

    // MARK: The connection

    func connected(sessionPresent: Bool) {
        isConnected = true
        for origin in watches.keys {
            watches[origin]!.hasSpoken = false
            watches[origin]!.isCertain = false
        }
        trustTimer = .once(milliseconds: Time.trust, on: context) { [unowned self] in
            (trustTimer, isTrusting) = (nil, true)
            goOn()
        }
        if !sessionPresent { doubt() }
    }

    func connectionEnded() {
        (isConnected, isTrusting) = (false, false)
        (timer, trustTimer) = (nil, nil)
        (seen, subscribing, unsubscribing) = ([], [], [])
        for origin in look?.fetched ?? [] { watches[origin]?.mustFetch = true }
        look = nil
    }

    /// The broker is asked for all values of filters that are new to it.
    func subscribed(by id: PacketID) { subscribing.insert(id) }

    func unsubscribed(by id: PacketID) {
        unsubscribing.insert(id)
        seen = []
    }

    /// The broker has answered a subscription.
    func answeredSubscription(_ id: PacketID) {
        if subscribing.remove(id) != nil, subscribing.isEmpty { doubt() }
    }

    /// The broker has answered the end of a subscription.
    func answeredUnsubscription(_ id: PacketID) { unsubscribing.remove(id) }

    // MARK: What there is

    /// The broker has sent a retained message.
    ///
    /// - Parameter isWanted: whether it is one of a subscription.
    func take(_ publication: Publication, isWanted: Bool) {
        let isValue = !publication.payload.isEmpty
        if isValue { look?.unseen[publication.topic] = nil }
        let topic = publication.topic.hashValue
        if !isValue {
            seen.remove(topic)
        } else if isWanted, unsubscribing.isEmpty, seen.count < Self.maxSeen {
            seen.insert(topic)
        }
    }

    // MARK: Doubts

    /// Something is new about a host.
    func follow(_ origin: Origin, _ host: HostTable.Host, before: HostTable.Host?) {
        guard hosts[origin] != nil else { return forget(origin) }
        var watch = watches[origin] ?? Watch()
        if let before, before.isOnline, host.isOnline, before.run != host.run { watch.hasRestarted = true }
        if host.isOnline, host.mark != nil, host.mark != before?.mark {
            if watch.hasSpoken { watch.isCertain = true }
            // The broker had forgotten something of it: so it may have done with what was to come here. Or its bridge is another
            // one, and the one before did not end in order.
            if watch.hasRestarted || before?.mark != nil && before?.run == host.run { watch.mustFetch = true }
            watch.hasRestarted = false
            lastDoubt += 1
            watch.doubt = lastDoubt
        }
        watch.hasSpoken = true
        watches[origin] = watch
        goOnSoon()
    }

    /// A host is not known any more.
    func forget(_ origin: Origin) { watches[origin] = nil }

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
        // What the broker answers goes on with it.
        guard isConnected, look == nil, subscribing.isEmpty else { return }
        let table = hosts
        var due: [Origin: String] = [:]
        var rest = Duration.seconds(3_600)
        for (origin, host) in table.hosts {
            let watch = watches[origin] ?? Watch()
            guard host.isOnline, let mark = host.mark, isDue(watch), !table.unconfirmed.contains(origin),
                watch.isCertain || isTrusting
            else { continue }
            let left = watch.lookedAt.map { Time.betweenLooks - (context.now - $0) } ?? .zero
            if left > .zero { rest = min(rest, left) } else { due[origin] = mark }
        }
        if !due.isEmpty {
            begin(due)
        } else if rest <= Time.betweenLooks, timer == nil {
            wait(UInt32((rest / .milliseconds(1)).rounded(.up)))
        }
    }

    private func begin(_ due: [Origin: String]) {
        timer = nil
        var (looked, fetched, filters) = (due, [Origin](), [String]())
        for origin in due.keys.sorted(by: { $0.text < $1.text }) where watches[origin]?.mustFetch == true {
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
        broker.showRetained(filters) { [weak self] _ in self?.askService(look) }
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
        var missing: [Candidate] = []
        for value in values {
            guard let origin = Origin(host: value.host ?? "", user: value.user ?? ""), look.hosts[origin] != nil,
                !irregular.contains(origin), wanted.contains(value.name)
            else { continue }
            let topic = BridgeTopic(value: value.name, value.object, of: origin).text(in: realm)
            if !seen.contains(topic.hashValue) {
                missing.append(Candidate(origin: origin, name: value.name, topic: topic))
            }
        }
        check(missing[...], atOnce: Self.together, missing: [], look)
    }

    /// Has the broker show topics, part by part, and those that it does not show a second time.
    private func check(
        _ rest: ArraySlice<Candidate>, atOnce size: Int, missing: [Candidate], _ look: Look
    ) {
        guard look === self.look else { return }
        guard !rest.isEmpty else {
            guard !missing.isEmpty, size > RetainedQueries.together else { return end(look, missing) }
            return check(missing[...], atOnce: RetainedQueries.together, missing: [], look)
        }
        let asked = rest.prefix(size)
        look.unseen = Dictionary(asked.map { ($0.topic, $0) }) { first, _ in first }
        broker.showRetained(asked.map(\.topic)) { [weak self] refused in
            // Nothing is known of those that it does not show.
            let unseen = asked.filter { look.unseen[$0.topic] != nil && !refused.contains($0.topic) }
            look.unseen = [:]
            self?.check(rest.dropFirst(asked.count), atOnce: size, missing: missing + unseen, look)
        }
    }

    private func end(_ look: Look, _ missing: [Candidate]) {
        self.look = nil
        let table = hosts
        for (origin, mark) in look.hosts {
            guard let host = table[origin] else { continue }
            watches[origin, default: Watch()].lookedAt = context.now
            if host.isOnline, host.mark == mark { watches[origin]!.answered = look.doubt }
        }
        for (origin, gone) in Dictionary(grouping: missing, by: \.origin).sorted(by: { $0.key.text < $1.key.text }) {
            guard table[origin]?.isOnline == true, table[origin]?.mark == look.hosts[origin] else { continue }
            let topics = gone.filter { wanted.contains($0.name) }.map(\.topic)
            guard !topics.isEmpty else { continue }
            Log.info("\(topics.count) values of \(origin.text) are gone")
            delegate?.valuesAreGone(topics, of: origin)
        }
        goOnSoon()
    }
}

/// Hosts under whose names plain clients publish values on other topics than a bridge does, so that nobody can tell from its
/// name and object on which topic a value is.
struct IrregularHosts: Equatable {
    private static let maxCount = 4_096

    private(set) var origins: Set<Origin> = []
    /// Whether there were more: then any host may be one.
    private(set) var isFull = false

    init(_ origins: Set<Origin> = [], isFull: Bool = false) {
        self.origins = origins
        self.isFull = isFull
    }

    mutating func insert(_ origin: Origin) {
        if origins.count < Self.maxCount {
            origins.insert(origin)
        } else {
            isFull = isFull || !origins.contains(origin)
        }
    }

    func contains(_ origin: Origin) -> Bool { isFull || origins.contains(origin) }
}
