// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The connection of the session with a broker, under one configuration. It passes the messages of both sides to the
/// exporter, the importer and other parts.
///
/// A crossing is used once: it starts, runs, drains and hands its state over. ``Bridge`` is the only owner of that
/// order.
final class Crossing {
    /// The phase of a crossing's life, in this order.
    enum Phase {
        case created
        case running
        /// Queued messages are sent, within a time limit.
        case draining
        /// The connection to the broker ends.
        case leaving
        /// Messages received from the broker are posted, within a time limit.
        case posting
        /// The bridge unregisters its observers; notifications on their way to it arrive.
        case withdrawing
        case ended
    }

    /// The reason why the crossing drains.
    enum DrainReason: Equatable {
        /// Another crossing follows.
        ///
        /// - Parameter keepsPresence: whether it has the same presence at the same broker, so that the host need not
        ///   go offline.
        case reload(keepsPresence: Bool)
        /// The process ends.
        case end
    }

    /// Time limits, in milliseconds where they have no unit.
    private enum Time {
        /// The time without a service after which the broker, and not this process, is to keep messages.
        static let withoutService: UInt32 = 20_000
        /// The maximum time for sending queued messages at the end, and for posting received ones.
        static let drain: UInt32 = 2_000
        /// The maximum time for the last notifications of the service.
        static let withdraw: UInt32 = 1_500
        /// The time after the end of a value in which that value may still arrive.
        static let behindRemoval = Duration.seconds(300)
        static let askAgain: UInt32 = 1_000
        /// The pause before values that did not fit into the queue are requested again.
        static let replay: UInt32 = 1_000
        /// The minimum time between two replays that missed notifications cause.
        static let betweenCatchUps = Duration.seconds(60)
    }

    let configuration: BridgeConfiguration
    /// The digest of the files that the configuration names, at the creation of the crossing.
    let fileDigest: Int
    private(set) var phase = Phase.created
    private let environment: BridgeEnvironment
    private let context: MainContext
    let center: CenterLink
    let posts: InwardPosts
    let broker: BrokerLink
    let losses: LossAnnouncer
    let exporter: Exporter
    let importer: Importer
    private let hosts: HostAnnouncer
    /// The maximum number of names, or values, in one answer of the service.
    private static let page: UInt32 = 1_000

    private var interest: PagedQuestion<FollowInterest>!
    private var values: PagedQuestion<FollowValues>!
    private var serviceTimer: EventSource?
    /// The time of the service's last report of ended values; `removalTimer` runs before the question that a later
    /// value causes.
    private var lastRemoval: SuspendingClock.Instant?
    private var removalTimer: EventSource?
    /// The pending announcement to other hosts that the broker has all values of this host.
    private enum Due {
        case nothing
        /// - Parameter again: whether the broker has lacked some.
        case mark(again: Bool)
    }

    private var due = Due.nothing
    private var look: OwnValuesLook!
    private let roundTrips: RoundTrips
    private var hostRemoval: HostRemoval?
    private let presence: PresenceKeeper
    private var confirmation: HostConfirmation!
    /// Whether the service has ended since it was asked for its values.
    private var serviceWasAway = false
    private var replayTimer: EventSource?
    private var catchUpTimer: EventSource?
    private var caughtUpAt: SuspendingClock.Instant?
    #if CARILLON_PLANTED
        private lazy var firstCounts = exporter.counts
    #endif
    /// The number of replays by the service that are under way.
    private var replays = 0
    private var drainReason = DrainReason.end
    private var drainTimer: EventSource?
    private var drained: ((@escaping () -> SavedState) -> Void)?

    /// - Throws: an error for a configuration that allows no connection to the broker.
    init(
        _ configuration: BridgeConfiguration, _ environment: BridgeEnvironment, center: CenterLink,
        posts: InwardPosts, losses: LossAnnouncer, presence: OwnPresence, context: MainContext
    ) throws(MQTTError) {
        self.configuration = configuration
        fileDigest = configuration.fileDigest()
        self.environment = environment
        self.context = context
        self.center = center
        self.posts = posts
        self.losses = losses
        broker = try BrokerLink(
            try .of(configuration, presence, id: environment.state.clientID()), environment, context: context)
        roundTrips = RoundTrips(
            topic: Self.topic(.test, configuration), broker: broker, makeToken: environment.makeToken, context: context)
        self.presence = PresenceKeeper(
            presence, on: Self.topic(.online, configuration), environment, broker: broker, context: context)
        exporter = Exporter(configuration, environment, run: presence.run, broker: broker, context: context) {
            [losses] count, name, reason in losses.lostOutwards(count, name, reason)
        }
        importer = Importer(
            configuration, environment, center: center, posts: posts, broker: broker, context: context
        ) {
            [losses] count, name, origin, reason in losses.lostInwards(count, name, origin, reason)
        }
        hosts = HostAnnouncer(configuration, center: center)
        // Programs register names one after the other, which the pause merges into one question.
        interest = PagedQuestion(
            "wanted names", of: center, on: context, pauses: .init(calm: 50), first: FollowInterest(most: Self.page),
            further: { $0.names.last.map { FollowInterest(after: $0, most: Self.page) } }
        ) { [unowned self] pieces in
            guard phase == .running else { return }
            importer.want(pieces.flatMap(\.names), any: pieces.contains(where: \.any))
            // Connects only now: the messages that the broker has kept are for observers that want them.
            if [.starting, .held].contains(broker.state), self.center.isThere { broker.connect() }
        }
        values = PagedQuestion(
            "retained values", of: center, on: context, pauses: .init(calm: 50),
            first: FollowValues(most: Self.page),
            further: { $0.last.map { FollowValues(after: $0.serial, most: Self.page) } },
            began: { [unowned self] in exporter.values.willAsk() }
        ) { [unowned self] pieces in
            importer.found(pieces.joined())
            let own = pieces.joined().lazy.filter(\.isOfThisSession)
            let hasLooked = look.finish()
            let difference = exporter.compare(
                with: Set(own.map { ValueKind($0.name, $0.object) }), hasLooked: hasLooked)
            if difference.isReplayNeeded { replay() }
            if hasLooked {
                due = .mark(again: difference.isReplayNeeded || !difference.gone.isEmpty)
                checkMark()
            }
            if difference.isUnsure { values.ask() }
        }
        look = OwnValuesLook(configuration, at: broker, for: exporter, context: context) { [unowned self] in
            values.ask()
        }
        confirmation = HostConfirmation(
            realm: configuration.realm, broker: broker, context: context,
            began: { [importer] in importer.beginConfirmingHosts() },
            unconfirmed: { [importer] in importer.gate.hosts.unconfirmed },
            known: { [importer] in importer.knownHosts },
            confirm: { [importer] in importer.confirmHosts($0) }, forget: { [unowned self] in forget($0) })
        broker.delegate = self
        broker.canary = (
            Self.topic(.online, configuration),
            BridgeTopic.presenceCanary(of: configuration.origin, in: configuration.realm)
        )
        exporter.onIdle = { [weak self] in self?.exporterIsIdle() }
        importer.onDoubt = { [weak self] in self?.values.ask() }
        // Presence messages may be among the dropped ones.
        importer.onDrops = { [weak self] in
            if configuration.followsPresence { self?.confirmation.again() }
        }
    }

    private static func topic(_ subject: BridgeTopic.Subject, _ configuration: BridgeConfiguration) -> String {
        BridgeTopic(subject, of: configuration.origin).text(in: configuration.realm)
    }

    // MARK: Lifecycle

    /// Starts with the state of the bridge before.
    ///
    /// - Parameters:
    ///   - state: nil if there is none.
    ///   - before: the replaced crossing; nil for the first one.
    func start(with state: SavedState?, replacing before: Crossing?) {
        guard phase == .created else { return }
        phase = .running
        posts.changed = { [weak self] in self?.postsChanged() }
        posts.foundNoRoom = { [importer] message in importer.foundNoRoom(for: message) }
        posts.kept = { [importer] message in importer.kept(message) }
        losses.use(configuration, broker)
        if let before { takeOver(from: before) }
        if let state {
            // At a reload the announcer still has its pending losses.
            if before == nil { losses.goOn(with: state.losses) }
            if state.realm == configuration.realm, state.origin == configuration.origin {
                exporter.goOn(with: state.counts, state.queue)
            } else {
                // The queue is for topics that are no longer those of this bridge.
                for entry in state.queue { losses.lostByChange(entry.message.name, of: state.origin) }
            }
            importer.goOn(with: state)
        }
        #if CARILLON_PLANTED
            _ = firstCounts
        #endif
        center.delegate = self
        center.export(configuration.exports)
        if center.isThere { serviceChanged(isThere: true) }
        if exporter.values.hasMissedSome { catchUp() }
        // Also asked while nothing is exported: without a request the client does not connect to the service.
        interest.ask()
    }

    private func takeOver(from before: Crossing) {
        exporter.exported = before.exporter.exported
        exporter.values = before.exporter.values
        exporter.values.stopLooking()
        exporter.values.forgetRefused()
        importer.totals = before.importer.totals
        serviceWasAway = before.serviceWasAway || !center.isThere
        let table = before.importer.gate.hosts
        if before.configuration.realm == configuration.realm, configuration.followsPresence {
            importer.take(table)
        } else {
            before.hosts.forget(table)
        }
    }

    /// Whether a connection to the broker may exist in a moment.
    var isAboutToConnect: Bool {
        phase == .created || phase == .running && [.starting, .connecting].contains(broker.state)
    }

    /// Whether a reload with this configuration would change nothing.
    func isUsing(_ configuration: BridgeConfiguration) -> Bool {
        configuration == self.configuration && configuration.fileDigest() == fileDigest
    }

    /// Whether the presence at the broker stays as it is when another crossing replaces this one.
    func hasPresence(of other: Crossing) -> Bool {
        let (one, two) = (configuration, other.configuration)
        return one.realm == two.realm && one.origin == two.origin && one.brokerHost == two.brokerHost
            && one.port == two.port
    }

    /// Ends the crossing in order, within about six seconds.
    ///
    /// At a reload the connection ends at once, and the next crossing gets everything that is left. At the end of the
    /// process queued messages are sent first, and received messages are posted last; the state contains the messages
    /// for which the time did not suffice. During a drain for a reload the reason may change.
    ///
    /// - Parameter done: called when the crossing has ended, with a closure that returns the state at the time of its
    ///   call: notifications may arrive as long as the client of the service exists. Only the `done` of the last call
    ///   is called.
    func drain(for reason: DrainReason, _ done: @escaping (@escaping () -> SavedState) -> Void) {
        drained = done
        let isFirst = phase == .running
        switch phase {
        case .running: phase = .draining
        case .draining, .leaving, .posting, .withdrawing: guard drainReason != .end else { return }
        case .created, .ended: return
        }
        drainReason = reason
        broker.keepConnection()
        serviceTimer = nil
        look.stop()
        presence.stop()
        (removalTimer, replayTimer, catchUpTimer) = (nil, nil, nil)
        roundTrips.end("the bridge ends")
        hostRemoval?.fail("the bridge ends")
        guard reason == .end else { return leave() }
        guard isFirst else { return }
        drainTimer = .once(milliseconds: Time.drain, on: context) { [unowned self] in leave() }
        checkDrained()
    }

    /// Continues the drain when nothing is left to wait for.
    private func checkDrained() {
        switch phase {
        case .draining:
            if exporter.isIdle || !broker.isConnected { leave() }
        case .posting: if posts.isIdle || !center.isThere || drainReason != .end { withdraw() }
        case .withdrawing: if !center.isThere { end() }
        case .created, .running, .leaving, .ended: break
        }
    }

    /// Pauses or resumes reading by the number of waiting messages.
    private func postsChanged() {
        broker.isReadingPaused = posts.count >= InwardPosts.window
        if posts.isIdle { checkDrained() }
    }

    private func exporterIsIdle() {
        // Values that did not fit into the queue fit now.
        if phase == .running, replayTimer == nil, exporter.values.takeReplay() {
            replayTimer = .once(milliseconds: Time.replay, on: context) { [unowned self] in
                replayTimer = nil
                replay()
            }
        }
        checkMark()
        checkDrained()
    }

    /// Has the service send its values again.
    private func replay() {
        replays += 1
        let misses = exporter.values.misses
        center.replayValues { [weak self] isComplete in
            guard let self else { return }
            replays -= 1
            if isComplete { exporter.values.replayed(behind: misses) } else { exporter.values.replayWasCut() }
            if exporter.values.hasMissedSome { catchUp() }
            exporter.pump()
        }
    }

    /// Announces to other hosts that the broker has all values of this host, when the service has sent them and the
    /// broker has acknowledged them.
    private func checkMark() {
        guard case .mark(let again) = due, exporter.isIdle, replays == 0, replayTimer == nil, broker.isConnected,
            phase == .running
        else { return }
        due = .nothing
        presence.tellValues(again: again)
    }

    private func leave() {
        guard phase == .draining else { return }
        phase = .leaving
        losses.announceNow()
        let keepsPresence = drainReason == .reload(keepsPresence: true)
        let farewell = keepsPresence ? nil : presence.farewell
        // The next crossing cancels the last will, if it connects in time.
        broker.end(as: .stopped, farewell, reason: keepsPresence ? .disconnectWithWill : .success) { [self] in
            phase = .posting
            drainTimer = .once(milliseconds: Time.drain, on: context) { [unowned self] in withdraw() }
            checkDrained()
        }
    }

    private func withdraw() {
        guard phase == .posting else { return }
        phase = .withdrawing
        guard drainReason == .end else { return end() }
        drainTimer = .once(milliseconds: 2 * Time.withdraw, on: context) { [unowned self] in end() }
        // The notifications that the service still has for the bridge are saved, too.
        center.withdraw(within: Time.withdraw) { [weak self] waiting in
            guard let self, phase == .withdrawing else { return }
            if waiting != 0 { losses.lostOutwards(waiting ?? 1, nil, .notSeen) }
            end()
        }
    }

    private func end() {
        guard phase == .withdrawing else { return }
        phase = .ended
        drainTimer = nil
        var state = SavedState(
            realm: configuration.realm, origin: configuration.origin, counts: exporter.counts, places: [], queue: [])
        importer.close(savingIn: &state)
        // At a reload the posts continue.
        if drainReason == .end { state.inbox = posts.close() }
        losses.announceNow()
        let done = drained
        drained = nil
        done? { [self] in
            (state.counts, state.queue, state.losses) = (exporter.counts, exporter.unacknowledged, losses.unannounced)
            #if CARILLON_PLANTED
                if PlantedFault.strikes(.inboxForgotten) { state.inbox = [] }
                if PlantedFault.strikes(.queueForgotten) { state.queue = [] }
                if PlantedFault.strikes(.lossForgotten), drainReason == .end { state.losses = [:] }
                if PlantedFault.strikes(.placesForgotten) { state.places = [] }
                if PlantedFault.strikes(.numbersReused) { state.counts = firstCounts }
            #endif
            return state
        }
    }

    // MARK: Commands

    /// Removes all messages that the broker and the session keep of a host that is gone for good.
    func forget(
        _ origin: Origin, _ done: @escaping (Result<HostRemoval.Result, RoundTripTest.Failure>) -> Void
    ) {
        guard broker.isConnected, phase == .running else {
            let reason = reason.isEmpty ? broker.state.name : reason
            return done(.failure(.init(reason: "not connected to \(configuration.brokerText): \(reason)")))
        }
        guard hostRemoval?.isOver != false else {
            return done(.failure(.init(reason: "another host is being forgotten")))
        }
        hostRemoval = HostRemoval(origin, in: configuration.realm, broker: broker, context: context) {
            [weak self] result, removed in
            if let self, phase == .running {
                switch result {
                case .success(let result): hasForgotten(origin, result)
                case .failure: importer.forget(origin, topics: removed)
                }
            }
            done(result)
        }
    }

    private func hasForgotten(_ origin: Origin, _ result: HostRemoval.Result) {
        Log.notice("\(result.removed.count) retained messages of \(origin.text) are removed from the broker")
        if result.refused > 0 {
            Log.warning(
                "the broker refused to remove \(result.refused) retained messages of \(origin.text): \(result.reason)")
        }
        importer.forget(origin, topics: result.removed)
        importer.forgetValues(of: origin)
        if importer.gate.hosts[origin] == nil { hosts.forget(origin) }
    }

    /// Sends a test message to the bridge itself through the broker.
    func test(_ done: @escaping (Result<Duration, RoundTripTest.Failure>) -> Void) {
        guard broker.isConnected, phase == .running else {
            let reason = reason.isEmpty ? broker.state.name : reason
            return done(.failure(.init(reason: "not connected to \(configuration.brokerText): \(reason)")))
        }
        roundTrips.test(done)
    }
}

// MARK: Events of the session

extension Crossing: CenterLinkDelegate {
    func arrived(_ notification: ArrivedNotification) {
        guard exporter.take(notification), let lastRemoval, phase == .running else { return }
        // The service reports the end of a value before notifications that wait for the bridge: this value may be gone
        // again.
        guard context.now - lastRemoval < Time.behindRemoval else { return self.lastRemoval = nil }
        guard removalTimer == nil else { return }
        removalTimer = .once(milliseconds: Time.askAgain, on: context) { [unowned self] in
            removalTimer = nil
            values.ask()
        }
    }

    func missed(_ count: UInt64) {
        losses.lostOutwards(count, nil, .notSeen)
        exporter.values.missedSome()
        catchUp()
    }

    /// Has the service send its values again after a pause: some may be among the missed notifications.
    private func catchUp() {
        guard phase == .running, catchUpTimer == nil else { return }
        let left = caughtUpAt.map { Time.betweenCatchUps - (context.now - $0) } ?? .zero
        let milliseconds = max(Int64(Time.replay), Int64(left / .milliseconds(1)))
        catchUpTimer = .once(milliseconds: UInt32(clamping: milliseconds), on: context) { [unowned self] in
            catchUpTimer = nil
            // The next service starts the replay.
            guard center.isThere else { return }
            caughtUpAt = context.now
            if exporter.values.hasMissedSome { replay() }
        }
    }

    func interestChanged() { interest.ask() }

    func valuesRemoved() {
        lastRemoval = context.now
        values.ask()
    }

    func serviceChanged(isThere: Bool) {
        if !isThere { serviceWasAway = true }
        guard phase == .running else { return checkDrained() }
        guard isThere else {
            serviceTimer = .once(milliseconds: Time.withoutService, on: context) { [unowned self] in
                Log.notice("there is no notification center in the session: the broker queues messages")
                broker.end(as: .held, presence.farewell)
            }
            return
        }
        if serviceWasAway {
            serviceWasAway = false
            // A service that ended may have kept a value without announcing it.
            exporter.values.missedSome()
            catchUp()
        }
        serviceTimer = nil
        interest.ask(anew: true)
        values.ask(anew: true)
        losses.serviceCame()
        hosts.tellAll(importer.gate.hosts)
        tellConnection()
        posts.serviceCame()
    }

    private func tellConnection() {
        hosts.tellConnection(broker.state == .connected, broker: configuration.brokerText, reason: reason)
    }
}

// MARK: Events of the broker

extension Crossing: BrokerLinkDelegate {
    func brokerChanged() {
        guard phase == .running, center.isThere else { return }
        tellConnection()
        // The service has come back while the farewell was on its way.
        if broker.state == .held { broker.connect() }
    }

    func brokerConnected(sessionPresent: Bool) {
        Log.notice(
            "connected to \(configuration.brokerText)\(sessionPresent ? ", which has kept the session" : "")")
        for remark in FileRemarks(configuration).all { Log.warning(remark) }
        if let reason = broker.missingGrant { Log.warning(reason) }
        presence.connected(sessionPresent: sessionPresent)
        if configuration.followsPresence { confirmation.begin() }
        importer.connected(sessionPresent: sessionPresent)
        look.connected()
        losses.brokerConnected()
        exporter.pump()
        roundTrips.connected()
    }

    func brokerHasShown() { if phase == .running { roundTrips.probe() } }

    var waitsForBroker: Bool {
        !exporter.isIdle || hostRemoval?.isOver == false || roundTrips.isWaiting || look.isUnderWay
    }

    func brokerDisconnected(because error: MQTTError?) {
        look.stop()
        presence.stop()
        confirmation.stop()
        losses.brokerDisconnected()
        hostRemoval?.fail("the connection to the broker has ended")
        roundTrips.end("the connection to the broker has ended")
        importer.connectionEnded()
        due = .nothing
        exporter.connectionEnded(because: error)
        checkDrained()
    }

    private func forget(_ hosts: [Origin]) {
        for origin in importer.endConfirmingHosts(hosts) {
            if let host = importer.gate.hosts[origin] { self.hosts.tell(origin, host, before: nil) }
        }
    }

    func brokerSent(_ publication: Publication) {
        if hostRemoval?.take(publication) == true { return }
        switch importer.take(publication) {
        case .own(let topic): takeOwn(publication, topic)
        case .presence(let origin, let host, let before):
            hosts.tell(origin, host, before: before)
            importer.follow(origin, host, before: before)
        case .ignored, .unwanted, .refused, .repeated, .message: break
        }
    }

    private func takeOwn(_ publication: Publication, _ topic: BridgeTopic) {
        switch topic.subject {
        case .notification(let name): look.show(name, "", publication, now: environment.time())
        case .value(let name, let object): look.show(name, object, publication, now: environment.time())
        case .test: roundTrips.received(publication)
        case .online: if phase == .running { presence.take(publication) }
        case .status: break
        }
    }

    func brokerAcknowledged(_ id: PacketID, _ reason: ReasonCode) {
        hostRemoval?.acknowledged(id, reason)
        exporter.acknowledged(id, reason)
    }

    func brokerSubscribed(_ id: PacketID, _ reasons: [ReasonCode]) {
        roundTrips.subscribed(id, reasons)
        importer.subscribed(id, reasons)
    }

    func brokerUnsubscribed(_ id: PacketID) { importer.unsubscribed(id) }
}
