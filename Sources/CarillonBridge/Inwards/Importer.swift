// SPDX-License-Identifier: Apache-2.0
import Collections
import DBus
import MQTT
import MainLoop
import NotificationCore
import NotificationWire
import ServiceClient

/// The way from the broker into the session: checks messages, and posts them in order with their origin.
final class Importer: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    /// The maximum of unposted messages, queued and unanswered. Beyond it the broker's socket is not read.
    static let window = 64

    private let configuration: BridgeConfiguration
    private let center: CenterLink
    private let broker: BrokerLink
    private let lost: (UInt64, String?, Origin, LossReason) -> Void
    private(set) var gate: InwardGate
    private var inbox = Deque<InwardMessage>()
    private var bound = BoundValues()
    /// The subscriptions that this process has made. Without the state of the process before, which may have been killed, the
    /// broker sends all values with the first one: values that go with their posters have to be known (R8).
    private var subscribed: Set<String> = []
    private var hasState = false
    /// The messages whose posts the service has not answered, by the order of their posts.
    private var unanswered: [UInt64: InwardMessage] = [:]
    private var lastPost: UInt64 = 0
    /// Those of values of which the service, or the bus, has not said whether they were posted.
    private var uncertain: [InwardMessage] = []
    /// Whether the first of the inbox waits for a comparison, and all others behind it.
    private var isComparing = false
    /// Whether messages are posted. Otherwise they wait for another importer.
    private var isOpen = true
    private var holeTimer: EventSource?
    private var sweep: ValueSweep!
    /// After the values were looked for again, and whether there was a reason to do so since.
    private var lookTimer: EventSource?
    private var isLookDue = false
    private let context: MainContext
    /// Microseconds since 1970 in UTC.
    private let time: () -> Int64
    var totals = Totals()
    /// Called when no message waits any more.
    var onIdle: () -> Void = {}
    /// Called when the broker has dropped messages, at most once in a while.
    var onDrops: () -> Void = {}

    struct Totals {
        var imported: UInt64 = 0
        var repeated: UInt64 = 0
        var refused: UInt64 = 0
    }

    init(
        _ configuration: BridgeConfiguration, _ environment: BridgeEnvironment, center: CenterLink, broker: BrokerLink,
        context: MainContext, lost: @escaping (UInt64, String?, Origin, LossReason) -> Void
    ) {
        time = environment.time
        self.configuration = configuration
        self.center = center
        self.broker = broker
        self.context = context
        self.lost = lost
        gate = InwardGate(
            realm: configuration.realm, own: configuration.origin, imports: configuration.imports)
        sweep = ValueSweep(
            realm: configuration.realm, center: center, broker: broker, context: context,
            hosts: { [unowned self] in gate.hosts },
            remove: { [unowned self] origin, topics in forget(origin, topics: topics) })
    }

    /// Continues where an earlier bridge ended.
    ///
    /// - Parameter places: the imported topics; empty when they are those of another realm.
    ///   - values: those that go with their posters.
    ///   - realm: that of the values.
    func goOn(
        with places: [PlaceCheck.Saved], _ messages: [InwardMessage], bound values: [BoundValues.Value],
        of realm: String
    ) {
        hasState = true
        if realm == configuration.realm, configuration.followsPresence {
            for value in values { bound.restore(value, now: time()) }
        } else {
            // Nobody would end them.
            for value in values where value.isHere { remove(value.message) }
        }
        var check = PlaceCheck()
        for place in places { check.restore(place, now: context.now) }
        gate = InwardGate(
            realm: configuration.realm, own: configuration.origin, imports: configuration.imports, places: check,
            hosts: gate.hosts)
        // They are acknowledged: nobody else has them.
        for message in messages where WantedNames.mayImport(message.name, configuration.imports) {
            inbox.append(message)
        }
        watchHoles()
        pump()
    }

    /// Takes the hosts that an earlier importer knew, which are announced already.
    func take(_ hosts: HostTable) { gate.take(hosts) }

    var filters: Set<String> { gate.wanted.filters(in: configuration.realm) }

    // MARK: Subscriptions

    /// Subscribes to the names that the session's observers want now, and unsubscribes from all others.
    func want(_ names: [String], any isAnyWanted: Bool) {
        let before = filters
        gate.wanted = WantedNames(
            observed: names, isAnyObserved: isAnyWanted, imports: configuration.imports,
            mostSubscriptions: configuration.mostSubscriptions)
        if gate.wanted.isCut {
            Log.warning(
                "more names are wanted than the limit subscriptions = \(configuration.mostSubscriptions) allows: "
                    + "the rest is not taken")
        }
        let after = filters
        // Nobody would tell that they end. The broker sends them again with the next subscription.
        bound.removeAll { [wanted = gate.wanted] in !wanted.contains($0.message.name) }.forEach(remove)
        pump()
        unsubscribe(before.subtracting(after))
        subscribe(after.subtracting(before), isNew: true)
    }

    /// Subscribes to everything again, as the broker may have forgotten. It sends values only for what is new to it.
    func connected(sessionPresent: Bool) {
        sweep.connected()
        subscribe(filters, isNew: !sessionPresent)
    }

    func connectionEnded() { sweep.stop() }

    func subscribed(_ id: PacketID, _ reasons: [ReasonCode]) { sweep.answered(id, reasons) }

    private static let together = 32
    /// The minimum between two looks at all values, in milliseconds.
    private static let calm: UInt32 = 60_000

    /// - Parameter isNew: whether the broker has none of these subscriptions, as far as is known.
    private func subscribe(_ filters: Set<String>, isNew: Bool) {
        // All of a packet have the same options.
        let isKnown = { [self] filter in !isNew && (hasState || subscribed.contains(filter)) }
        for known in [true, false] {
            for part in filters.filter({ isKnown($0) == known }).sorted().chunks(of: Self.together) {
                let id = broker.subscribe(
                    part.map { filter in
                        TopicFilter(
                            filter, excludesOwn: true, keepsRetainFlag: true, retainHandling: known ? .ifNew : .always)
                    })
                guard let id else { continue }
                if !hasState { subscribed.formUnion(part) }
                if !known { sweep.subscribed(Array(part), by: id) }
            }
        }
    }

    private func unsubscribe(_ filters: Set<String>) {
        subscribed.subtract(filters)
        for part in filters.sorted().chunks(of: Self.together) { broker.unsubscribe(Array(part)) }
    }

    // MARK: Messages

    /// Takes a message for the session.
    ///
    /// - Returns: its kind, for the other parts of the bridge.
    func take(_ publication: Publication) -> InwardGate.Judgement {
        sweep.take(publication)
        let judgement = gate.judge(publication, now: context.now)
        defer { watchHoles() }
        switch judgement {
        case .ignored, .own, .presence: break
        // Of an earlier process that the broker kept the session of, or of what was wanted a moment ago.
        case .unwanted(let name): unsubscribeUnwanted(name)
        case .refused(let name, let origin, let reason, let words):
            totals.refused += 1
            Log.info("\(name) of \(origin.text) is not taken: \(words)")
            if let reason { lost(1, name, origin, reason) }
        case .repeated: totals.repeated += 1
        case .message(let message):
            if configuration.followsPresence {
                switch bound.take(message, host: gate.hosts[message.origin], now: time()) {
                case .post: break
                case .wait:
                    // The session may have it from a process that was killed.
                    remove(message)
                    pump()
                    return judgement
                case .refuse:
                    totals.refused += 1
                    Log.info("\(message.name) of \(message.origin.text) is not taken: too many values go with posters")
                    lost(1, message.name, message.origin, .refused)
                    // An older one would never end.
                    remove(message)
                    pump()
                    return judgement
                }
            }
            inbox.append(message)
            pump()
        }
        return judgement
    }

    /// Something is new about a host. Values that go with their posters end with it, and are there again with it (R8).
    func follow(_ origin: Origin, _ host: HostTable.Host, before: HostTable.Host?) {
        follow(origin)
        // The broker has forgotten something: so it may have done with what was to come here.
        if sweep.follow(origin, host, before: before) { lookAgain() }
    }

    /// Has the broker show all values, at most once in a while.
    private func lookAgain() {
        guard lookTimer == nil else { return isLookDue = true }
        isLookDue = false
        sweep.restart()
        subscribe(filters, isNew: true)
        onDrops()
        lookTimer = .once(milliseconds: Self.calm, on: context) { [unowned self] in
            lookTimer = nil
            if isLookDue { lookAgain() }
        }
    }

    private func follow(_ origin: Origin) {
        let (over, again) = bound.follow(origin, gate.hosts[origin], now: time())
        over.forEach(remove)
        for message in again { inbox.append(message.told(anew: true)) }
        pump()
    }

    /// Nothing is kept on these topics of a host any more. The broker does not tell those that say so.
    func forget(_ origin: Origin, topics: [String]) {
        for topic in topics {
            let publication = Publication(topic: topic, payload: [], isRetained: true)
            guard let parsed = BridgeTopic(topic, in: configuration.realm) else { continue }
            switch parsed.subject {
            case .online: gate.forget(origin)
            case .notification, .value:
                if let message = try? InwardMessage(publication, on: parsed) {
                    _ = bound.take(message, host: nil, now: time())
                    inbox.append(message)
                }
            case .status, .test: break
            }
        }
        pump()
    }

    private func remove(_ message: InwardMessage) {
        if let removal = message.removal(in: configuration.realm) { inbox.append(removal) }
    }

    /// There is a new connection: what the broker does not show any more will be over.
    func beginConfirmingHosts() { gate.beginConfirmingHosts() }

    /// The broker has forgotten these hosts.
    ///
    /// - Returns: those that were online.
    func endConfirmingHosts(_ forgotten: [Origin]) -> [Origin] {
        let forgotten = gate.endConfirmingHosts(forgotten)
        // Also those that an earlier process knew.
        bound.origins.forEach(follow)
        return forgotten
    }

    private func unsubscribeUnwanted(_ name: String) {
        let filters = Set(BridgeTopic.filters(name: name, in: configuration.realm))
        unsubscribe(filters.subtracting(self.filters))
        for case .below(let prefix) in configuration.imports where NamePattern.below(prefix).matches(name) {
            unsubscribe(Set(BridgeTopic.filters(below: prefix, in: configuration.realm)).subtracting(self.filters))
        }
    }

    private func watchHoles() {
        guard gate.isWaitingForLosses, holeTimer == nil, isOpen else { return }
        holeTimer = .once(milliseconds: 1_000, on: context) { [unowned self] in
            holeTimer = nil
            let losses = gate.losses(at: context.now)
            for loss in losses { lost(loss.count, loss.name, loss.origin, .missing) }
            // A broker that has dropped messages may have dropped values, and their ends.
            if !losses.isEmpty { lookAgain() }
            watchHoles()
        }
    }

    /// Whether every message that was taken is posted and answered.
    var isIdle: Bool { inbox.isEmpty && unanswered.isEmpty && uncertain.isEmpty && !isComparing }

    /// Posts messages that wait, while the service is there and answers.
    func pump() {
        defer { pauseReading() }
        if isOpen, !isComparing { retryUncertain() }
        while isOpen, center.isThere, !isComparing, unanswered.count < Self.window, let message = inbox.popFirst() {
            if case .notification(let userInfo) = message.content, message.isToldAnew {
                compare(message, userInfo)
            } else {
                carryOut(message)
            }
        }
        if isIdle { onIdle() }
    }

    private func pauseReading() {
        broker.isReadingPaused = inbox.count + unanswered.count >= Self.window
    }

    private func carryOut(_ message: InwardMessage) {
        switch message.content {
        case .notification(let userInfo): post(message, userInfo)
        case .removal:
            let number = noteUnanswered(message)
            let call = RemoveRetainedFrom(
                host: message.origin.host, user: message.origin.user, name: message.name, object: message.object)
            center.submit(
                .call(call) { [self] result in
                    switch result {
                    case .success: answered(number, nil)
                    case .failure(let error): answered(number, error)
                    }
                })
        }
    }

    private func post(_ message: InwardMessage, _ userInfo: [String: PropertyList]) {
        do throws(CenterError) {
            var options = PostOptions()
            options.origin = try OutsideOrigin(host: message.origin.host, user: message.origin.user)
            options.retention = message.isKept ? Retention() : nil
            options.expiresAfter = message.expiresAfter
            let number = lastPost + 1
            let post = try OutgoingPost(
                name: message.name, object: message.object, userInfo: userInfo, options: options
            ) { [self] result in
                switch result {
                case .success:
                    totals.imported += 1
                    answered(number, nil)
                case .failure(let error): answered(number, error)
                }
            }
            _ = noteUnanswered(message)
            center.submit(.post(post))
        } catch {
            failed(message, .refused(BusError(error)))
        }
    }

    private func noteUnanswered(_ message: InwardMessage) -> UInt64 {
        lastPost += 1
        unanswered[lastPost] = message
        return lastPost
    }

    private func answered(_ number: UInt64, _ error: ServiceError?) {
        guard let message = unanswered.removeValue(forKey: number) else { return }
        if let error { failed(message, error) }
        pump()
    }

    private func failed(_ message: InwardMessage, _ error: ServiceError) {
        totals.refused += 1
        if case .refused = error {
            Log.info("\(message.name) of \(message.origin.text) was refused: \(error)")
            lost(1, message.name, message.origin, .refused)
        } else if message.isKept {
            // It is known what there has to be.
            uncertain.append(message)
        } else {
            // It may have been posted. Nothing comes twice, so it is announced as a possible loss.
            lost(1, message.name, message.origin, .uncertain)
        }
    }

    /// Has values, and ends of values, carried out again of which nobody knows whether they were, ahead of those that wait.
    private func retryUncertain() {
        guard !uncertain.isEmpty, unanswered.isEmpty else { return }
        var newer = Set(inbox.lazy.filter(\.isKept).map(\.value))
        for message in uncertain.reversed() {
            if newer.insert(message.value).inserted {
                inbox.prepend(message.told(anew: true))
            } else {
                lost(1, message.name, message.origin, .uncertain)
            }
        }
        uncertain = []
    }

    /// Posts a value that was at the broker before only if the session does not have it: after a new connection the broker
    /// sends all of them, and nothing has happened.
    private func compare(_ message: InwardMessage, _ userInfo: [String: PropertyList]) {
        isComparing = true
        // It is not posted: until the answer it belongs to the inbox.
        inbox.prepend(message)
        center.submit(
            .call(Get(name: message.name, object: message.object)) { [weak self] result in
                guard let self, isComparing else { return }
                isComparing = false
                _ = inbox.popFirst()
                let kept = (try? result.get()) ?? []
                let isHere = kept.contains { message.isKept(as: $0, userInfo) }
                if isHere { totals.repeated += 1 } else { carryOut(message) }
                pump()
            })
    }

    // MARK: Ends

    /// Ends. Answers of the service still count.
    ///
    /// - Parameter awaitsAnswers: whether the service's answers will come; otherwise posts without one may be lost, which is
    ///   announced.
    /// - Returns: the messages that are not posted, in order, the state of the topics, and the values that go with their
    ///   posters.
    func close(
        awaitsAnswers: Bool
    ) -> (inbox: [InwardMessage], places: [PlaceCheck.Saved], bound: [BoundValues.Value]) {
        isOpen = false
        (onIdle, onDrops) = ({}, {})
        isComparing = false
        (holeTimer, lookTimer) = (nil, nil)
        if !awaitsAnswers {
            let left = unanswered.sorted { $0.key < $1.key }.map(\.value)
            unanswered = [:]
            for message in left { failed(message, .disconnected("the bridge ends")) }
        }
        retryUncertain()
        defer { inbox.removeAll() }
        return (Array(inbox), gate.places.saved, bound.saved(at: time()))
    }
}

extension Array {
    fileprivate func chunks(of size: Int) -> [ArraySlice<Element>] {
        stride(from: 0, to: count, by: size).map { self[$0..<Swift.min($0 + size, count)] }
    }
}
