// SPDX-License-Identifier: Apache-2.0
import MQTT
import MainLoop
import NotificationWire

/// Finds values of other hosts that the session still has, and their hosts do not: they were removed while the broker did not
/// know this bridge, or while nobody here wanted their names, or the broker has forgotten the removal (R1).
///
/// A filter that is new to the broker has it show all values. A value that it has not shown is removed, where its host has said
/// that the broker has all its values (``HostTable/Host/mark``), and where the broker does not show the value when it is asked
/// for that one alone: it may have dropped it for want of room.
final class ValueSweep {
    private enum Time {
        /// The broker has shown everything when it has sent nothing of it for so long, in milliseconds.
        static let calm: UInt32 = 5_000
        /// The word of a host from before this connection is trusted after so long: a broker that has forgotten something has
        /// ended the host's connection, too.
        static let trust = Duration.seconds(95)
    }

    /// The maximum of topics that are remembered. With more of them nothing is found.
    private static let maxShown = 131_072
    private let realm: String
    private let broker: BrokerLink
    private let context: MainContext
    /// The hosts of the realm.
    private let hosts: () -> HostTable
    private var question: PagedQuestion<FollowValues>!
    /// The filters that are new to the broker, and those that it has not answered.
    private var filters: Set<String> = []
    private var asked: [PacketID: [String]] = [:]
    /// The hash values of the topics on which it has sent values since.
    private var shown: Set<Int> = []
    private var lastShown: SuspendingClock.Instant
    private var connectedAt: SuspendingClock.Instant
    /// Hosts that have changed on this connection, and those of them that have said since that all their values are there.
    private var changed: Set<Origin> = []
    private var certain: Set<Origin> = []
    private var done: Set<Origin> = []
    /// Hosts whose bridge has another run than before, without an end.
    private var restarted: Set<Origin> = []
    /// Hosts whose values the service is asked for.
    private var asking: Set<Origin> = []
    /// The broker is asked for each value that it has not shown.
    private let check: RetainedCheck
    private var timer: EventSource?

    init(
        realm: String, center: CenterLink, broker: BrokerLink, context: MainContext, hosts: @escaping () -> HostTable,
        remove: @escaping (Origin, [String]) -> Void
    ) {
        self.realm = realm
        self.broker = broker
        self.context = context
        self.hosts = hosts
        check = RetainedCheck(broker: broker, context: context) { topics in
            for (origin, gone) in Dictionary(grouping: topics, by: { BridgeTopic($0, in: realm)?.origin }) {
                guard let origin else { continue }
                Log.info("\(gone.count) values of \(origin.text) are gone")
                remove(origin, gone)
            }
        }
        (lastShown, connectedAt) = (context.now, context.now)
        question = PagedQuestion(
            "which values of others it keeps", of: center, on: context, first: FollowValues(most: 1_000),
            further: { $0.last.map { FollowValues(after: $0.serial, most: 1_000) } }
        ) { [unowned self] pieces in find(among: pieces.joined()) }
    }

    func connected() { connectedAt = context.now }

    func stop() {
        (filters, asked, shown) = ([], [:], [])
        (changed, certain, done, restarted, asking) = ([], [], [], [], [])
        check.stop()
        timer = nil
    }

    /// The broker is asked for all values again.
    func restart() {
        (filters, asked, shown) = ([], [:], [])
    }

    private var isActive: Bool { !filters.isEmpty || !asked.isEmpty }

    /// The broker is asked for all values of filters.
    func subscribed(_ new: [String], by id: PacketID) {
        asked[id] = new
        done = []
    }

    func answered(_ id: PacketID, _ reasons: [ReasonCode]) {
        check.answered(id, reasons)
        guard let new = asked.removeValue(forKey: id) else { return }
        filters.formUnion(zip(new, reasons).filter { !$0.1.isFailure }.map(\.0))
        lastShown = context.now
        wait()
    }

    /// The broker has sent a value, one of those that there were or a new one.
    func take(_ publication: Publication) {
        guard isActive, publication.isRetained, !publication.payload.isEmpty else { return }
        check.take(publication)
        lastShown = context.now
        if shown.count < Self.maxShown { shown.insert(publication.topic.hashValue) }
    }

    /// Something is new about a host.
    ///
    /// - Returns: whether there is a reason to have the broker show all values again: it had forgotten something of the host,
    ///   which is there again, or the host's bridge is another one, and the one before did not end in order.
    func follow(_ origin: Origin, _ host: HostTable.Host, before: HostTable.Host?) -> Bool {
        if let before, before.isOnline, host.isOnline, before.run != host.run { restarted.insert(origin) }
        let isMarked = host.isOnline && host.mark != nil && host.mark != before?.mark
        if isMarked, changed.contains(origin) { certain.insert(origin) }
        changed.insert(origin)
        wait()
        guard isMarked else { return false }
        let isAgain = before?.mark != nil && before?.run == host.run
        return restarted.remove(origin) != nil || isAgain
    }

    // MARK: Looking

    private func wait() {
        guard isActive, timer == nil else { return }
        timer = .once(milliseconds: Time.calm, on: context) { [unowned self] in
            timer = nil
            goOn()
        }
    }

    private func goOn() {
        guard asked.isEmpty, check.isIdle, asking.isEmpty, !broker.isReadingPaused,
            context.now - lastShown >= .milliseconds(Time.calm)
        else { return wait() }
        guard shown.count < Self.maxShown else { return }
        let isTrusted = context.now - connectedAt >= Time.trust
        let marked = hosts().hosts.filter { $0.value.isOnline && $0.value.mark != nil && !done.contains($0.key) }.keys
        asking = Set(marked.filter { isTrusted || certain.contains($0) })
        if !asking.isEmpty { return question.ask() }
        // Otherwise the next word of a host goes on with it.
        if !isTrusted { wait() }
    }

    private func find(among values: some Sequence<FollowValues.Listed>) {
        done.formUnion(asking)
        var missing: [String] = []
        for value in values {
            guard let origin = Origin(host: value.host ?? "", user: value.user ?? ""), asking.contains(origin) else {
                continue
            }
            let subject: BridgeTopic.Subject =
                value.object.isEmpty
                ? .notification(name: value.name) : .value(name: value.name, object: value.object)
            let topic = BridgeTopic(subject, of: origin).text(in: realm)
            guard !shown.contains(topic.hashValue), filters.contains(where: { BridgeTopic.matches($0, topic) }) else {
                continue
            }
            missing.append(topic)
        }
        if !missing.isEmpty { check.check(missing) }
        asking = []
        lastShown = context.now
        wait()
    }
}
