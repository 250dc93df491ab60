// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The exchange between a session and a broker, under one configuration. It creates the parts for both directions,
/// ``Exporter`` and ``Importer``, and passes the events of the service and of the broker to them.
///
/// A crossing is used once, in the order of its phases: it starts, runs, drains (finishes its work within time limits)
/// and hands its state over. ``Bridge`` creates it, and replaces it at a reload of the configuration.
///
/// In the bridge's sources a *value* is a retained value: the newest retained notification of a name and an object. A
/// *host* is a session of the realm, identified by machine and user (``Origin``).
final class BridgeInstance {
    /// The phase of a crossing's life, in this order.
    enum Phase {
        case created
        case running
        /// The bridge sends queued messages, within a time limit.
        case draining
        /// The bridge ends the connection to the broker.
        case leaving
        /// The bridge posts messages that it has received from the broker, within a time limit.
        case posting
        /// The bridge unregisters its observers. Notifications that the service has queued for it still arrive.
        case withdrawing
        case ended
    }

    /// The reason why the crossing drains.
    enum DrainReason: Equatable {
        /// Another crossing follows.
        ///
        /// - Parameter keepsPresence: whether the next crossing has the same presence at the same broker. The host then
        ///   does not go offline in between.
        case reload(keepsPresence: Bool)
        /// The process ends.
        case end
    }

    /// Time limits, in milliseconds where the type has no unit.
    private enum Time {
        /// The time without a notification service after which the bridge disconnects from the broker, which then
        /// queues messages.
        static let withoutService: UInt32 = 20_000
        /// The maximum time for sending queued messages at the end, and then again for posting received ones.
        static let drain: UInt32 = 2_000
        /// The maximum time for the notifications that the service still has for the bridge.
        static let withdraw: UInt32 = 1_500
        /// The time after the end of a value in which a notification that set this value may still arrive.
        static let behindRemoval = Duration.seconds(300)
        /// The pause before the service is asked for its values because of such a notification.
        static let askAgain: UInt32 = 1_000
        /// The pause before the service sends its values again because some did not fit into the queue.
        static let replay: UInt32 = 1_000
        /// The minimum time between two replays because of missed notifications.
        static let betweenCatchUps = Duration.seconds(60)
    }

    let configuration: BridgeConfiguration
    /// The digest of the files that the configuration names, when the crossing was created.
    let fileDigest: Int
    private(set) var phase = Phase.created
    private let environment: BridgeEnvironment
    private let context: MainContext
    /// The client of the notification service, which outlives the crossing.
    let center: CenterLink
    /// The queue of messages to post in the session, which outlives the crossing.
    let posts: InwardPosts
    /// The connection to the broker.
    let broker: BrokerLink
    /// The announcements of losses, which outlive the crossing.
    let losses: LossAnnouncer
    /// The direction from the session to the broker.
    let exporter: Exporter
    /// The direction from the broker to the session.
    let importer: Importer
    /// The announcements of other hosts to the session.
    private let hosts: HostAnnouncer
    /// The maximum number of names, or values, in one page of the service's answer.
    private static let page: UInt32 = 1_000

    /// The question for the names that observers of the session want.
    private var interest: PagedQuestion<FollowInterest>!
    /// The question for the values that the service has.
    private var values: PagedQuestion<FollowValues>!
    /// Runs while the service is absent (``Time/withoutService``).
    private var serviceTimer: EventSource?
    /// The time of the service's last report that values have ended; nil if that is long ago.
    private var lastRemoval: SuspendingClock.Instant?
    /// Runs before the question that a notification behind such a report causes (``arrived(_:)``).
    private var removalTimer: EventSource?
    /// The pending announcement to other hosts that the broker has all values of this host. They then compare their
    /// copies.
    private enum PendingAnnouncement {
        /// No announcement is pending.
        case nothing
        /// The announcement follows as soon as the broker has acknowledged all messages.
        ///
        /// - Parameter again: whether the broker has lacked some values.
        case valuesAnnouncement(again: Bool)
    }

    /// The announcement that is pending.
    private var due = PendingAnnouncement.nothing
    /// The comparison of the broker's copies of this host's values with the session, at each connection.
    private var ownValuesCheck: OwnValuesCheck!
    /// The test messages of the bridge to itself.
    private let roundTrips: RoundTrips
    /// The last command to remove a host; nil before the first.
    private var hostRemoval: HostRemoval?
    /// The publication of this host's presence.
    private let presence: PresenceKeeper
    /// The check which hosts the broker still knows, after each connection.
    private var confirmation: HostConfirmation!
    /// Whether the service was absent at some time after the last replay was scheduled.
    private var serviceWasAway = false
    /// Runs before a replay of values that did not fit into the queue.
    private var replayTimer: EventSource?
    /// Runs before a replay because of missed notifications.
    private var catchUpTimer: EventSource?
    /// The time of the last replay because of missed notifications.
    private var caughtUpAt: SuspendingClock.Instant?
    // Test builds contain faults, to check that the simulation finds them (E7).
    #if CARILLON_PLANTED
        private lazy var firstCounts = exporter.counts
    #endif
    /// The number of replays by the service that are under way.
    private var replays = 0
    /// The reason of ``drain(for:_:)``.
    private var drainReason = DrainReason.end
    /// The time limit of the present phase of the drain.
    private var drainTimer: EventSource?
    /// The callback of ``drain(for:_:)``.
    private var drained: ((@escaping () -> SavedState) -> Void)?

    /// Creates a crossing with all its parts, without a connection.
    ///
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
        // A program registers several names one after the other. The pause of 50 ms merges them into one question.
        interest = PagedQuestion(
            "wanted names", of: center, on: context, pauses: .init(calm: 50), first: FollowInterest(most: Self.page),
            further: { $0.names.last.map { FollowInterest(after: $0, most: Self.page) } }
        ) { [unowned self] pieces in
            guard phase == .running else { return }
            importer.want(pieces.flatMap(\.names), any: pieces.contains(where: \.any))
            // The bridge connects only when the wanted names are known. Otherwise it would discard messages that the
            // broker has queued for their observers.
            if [.starting, .held].contains(broker.state), self.center.isThere { broker.connect() }
        }
        values = PagedQuestion(
            "retained values", of: center, on: context, pauses: .init(calm: 50),
            first: FollowValues(most: Self.page),
            further: { $0.last.map { FollowValues(after: $0.serial, most: Self.page) } },
            began: { [unowned self] in exporter.values.willAsk() }
        ) { [unowned self] pieces in
            // The list serves two comparisons: of other hosts' values with the broker (importer), and of own values at
            // the broker with the session (exporter).
            importer.found(pieces.joined())
            let own = pieces.joined().lazy.filter(\.isOfThisSession)
            // True once for each connection, for the first list after the broker has shown its values of this host.
            let hasLooked = ownValuesCheck.finish()
            let difference = exporter.compare(
                with: Set(own.map { ValueKey($0.name, $0.object) }), hasLooked: hasLooked)
            if difference.isReplayNeeded { replay() }
            if hasLooked {
                due = .valuesAnnouncement(again: difference.isReplayNeeded || !difference.gone.isEmpty)
                announceValuesIfComplete()
            }
            if difference.mustAskAgain { values.ask() }
        }
        ownValuesCheck = OwnValuesCheck(configuration, at: broker, for: exporter, context: context) { [unowned self] in
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
        importer.askForValueList = { [weak self] in self?.values.ask() }
        // Presence messages may be among the messages that the broker has dropped.
        importer.onDrops = { [weak self] in
            if configuration.followsPresence { self?.confirmation.again() }
        }
    }

    /// Returns the text of a topic of this host.
    private static func topic(_ subject: BridgeTopic.Subject, _ configuration: BridgeConfiguration) -> String {
        BridgeTopic(subject, of: configuration.origin).text(in: configuration.realm)
    }

    // MARK: Lifecycle

    /// Starts the exchange.
    ///
    /// - Parameters:
    ///   - state: the state of the bridge before; nil if there is none.
    ///   - before: the replaced crossing of this process; nil for the first one.
    func start(with state: SavedState?, replacing before: BridgeInstance?) {
        guard phase == .created else { return }
        phase = .running
        posts.changed = { [weak self] in self?.postsChanged() }
        // The importer keeps the list of values that a full service has refused, to fetch them later. A value that the
        // service accepts leaves the list.
        posts.noteNoSpace = { [importer] message in importer.noteNoSpace(for: message) }
        posts.kept = { [importer] message in importer.kept(message) }
        losses.use(configuration, broker)
        if let before { takeOver(from: before) }
        if let state {
            // The announcer outlives a reload, and still has its pending losses then.
            if before == nil { losses.goOn(with: state.losses) }
            if state.realm == configuration.realm, state.origin == configuration.origin {
                exporter.goOn(with: state.counts, state.queue)
            } else {
                // The queued messages are for topics of another realm, host or user, which this bridge may not use.
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
        // The replaced crossing may have missed notifications without a replay since then.
        if exporter.values.mayLackValues { catchUp() }
        // Asked even if nothing is imported: without a request the client does not connect to the service.
        interest.ask()
    }

    /// Continues with the counts, the values and the hosts of the replaced crossing.
    private func takeOver(from before: BridgeInstance) {
        exporter.exported = before.exporter.exported
        exporter.values = before.exporter.values
        // The broker's answers belong to the earlier connection, and refusals to the earlier configuration.
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

    /// Whether the crossing connects, or is about to do so.
    var isAboutToConnect: Bool {
        phase == .created || phase == .running && [.starting, .connecting].contains(broker.state)
    }

    /// Whether a reload with this configuration would change nothing.
    func isUsing(_ configuration: BridgeConfiguration) -> Bool {
        configuration == self.configuration && configuration.fileDigest() == fileDigest
    }

    /// Whether another crossing has the same presence at the same broker as this one.
    func hasPresence(of other: BridgeInstance) -> Bool {
        let (one, two) = (configuration, other.configuration)
        return one.realm == two.realm && one.origin == two.origin && one.brokerHost == two.brokerHost
            && one.port == two.port
    }

    /// Ends the crossing in order, within about eight seconds.
    ///
    /// At a reload the connection to the broker ends at once, and the next crossing gets all remaining work with the
    /// state. At the end of the process the crossing first sends queued messages, and last posts received messages. The
    /// state contains the messages for which the time did not suffice.
    ///
    /// A further call replaces the reason and `done`, unless the process already ends.
    ///
    /// - Parameter done: called when the crossing has ended, with a closure that returns the state. The closure is
    ///   called later, because notifications arrive as long as the client of the service exists. Of several calls only
    ///   the last `done` is called.
    func drain(for reason: DrainReason, _ done: @escaping (@escaping () -> SavedState) -> Void) {
        drained = done
        let isFirst = phase == .running
        switch phase {
        case .running: phase = .draining
        case .draining, .leaving, .posting, .withdrawing: guard drainReason != .end else { return }
        case .created, .ended: return
        }
        drainReason = reason
        // The connection is not renewed any more: it ends when the queue is sent.
        broker.keepConnection()
        serviceTimer = nil
        ownValuesCheck.stop()
        presence.stop()
        (removalTimer, replayTimer, catchUpTimer) = (nil, nil, nil)
        roundTrips.end("the bridge ends")
        hostRemoval?.fail("the bridge ends")
        guard reason == .end else { return leave() }
        // A crossing that already drains for a reload has left the broker. Its next phases apply the new reason.
        guard isFirst else { return }
        drainTimer = .once(milliseconds: Time.drain, on: context) { [unowned self] in leave() }
        checkDrained()
    }

    /// Continues with the next phase of the drain, if the present one has nothing to wait for: its work is done, its
    /// peer is gone, or a reload leaves the posts to the next crossing.
    private func checkDrained() {
        switch phase {
        case .draining:
            if exporter.isIdle || !broker.isConnected { leave() }
        case .posting: if posts.isIdle || !center.isThere || drainReason != .end { withdraw() }
        case .withdrawing: if !center.isThere { end() }
        case .created, .running, .leaving, .ended: break
        }
    }

    /// Applies backpressure: the bridge does not read from the broker while the maximum number of messages waits to be
    /// posted.
    private func postsChanged() {
        broker.isReadingPaused = posts.count >= InwardPosts.window
        if posts.isIdle { checkDrained() }
    }

    /// Called when the broker has acknowledged all messages.
    private func exporterIsIdle() {
        // Values that the full queue has dropped fit now.
        if phase == .running, replayTimer == nil, exporter.values.takeReplay() {
            replayTimer = .once(milliseconds: Time.replay, on: context) { [unowned self] in
                replayTimer = nil
                replay()
            }
        }
        announceValuesIfComplete()
        checkDrained()
    }

    /// Has the service send all its values again, as retained replay to new observers.
    private func replay() {
        replays += 1
        let misses = exporter.values.misses
        center.replayValues { [weak self] isComplete in
            guard let self else { return }
            replays -= 1
            if isComplete { exporter.values.replayed(behind: misses) } else { exporter.values.replayWasCut() }
            if exporter.values.mayLackValues { catchUp() }
            // The announcement of complete values may have waited for the replay. An idle exporter calls `onIdle` now.
            exporter.pump()
        }
    }

    /// Announces to other hosts that the broker has all values of this host, if the announcement is pending, the
    /// service has sent the values and the broker has acknowledged them.
    private func announceValuesIfComplete() {
        guard case .valuesAnnouncement(let again) = due, exporter.isIdle, replays == 0, replayTimer == nil,
            broker.isConnected,
            phase == .running
        else { return }
        due = .nothing
        presence.announceValues(again: again)
    }

    /// Ends the connection to the broker. Unless the next crossing keeps the presence, the bridge first publishes that
    /// the host is offline.
    private func leave() {
        guard phase == .draining else { return }
        phase = .leaving
        losses.announceNow()
        let keepsPresence = drainReason == .reload(keepsPresence: true)
        let offlineMessage = keepsPresence ? nil : presence.offlineMessage
        // With an unchanged presence the last will protects the time until the next crossing connects: the broker
        // publishes it only if that takes too long.
        broker.end(as: .stopped, offlineMessage, reason: keepsPresence ? .disconnectWithWill : .success) { [self] in
            phase = .posting
            drainTimer = .once(milliseconds: Time.drain, on: context) { [unowned self] in withdraw() }
            checkDrained()
        }
    }

    /// Unregisters the observers and receives the notifications that the service still has for them. At a reload the
    /// observers stay.
    private func withdraw() {
        guard phase == .posting else { return }
        phase = .withdrawing
        guard drainReason == .end else { return end() }
        // `center.withdraw` has a time limit of its own. This longer one holds if it never replies.
        drainTimer = .once(milliseconds: 2 * Time.withdraw, on: context) { [unowned self] in end() }
        // The exporter queues the notifications that still arrive, and the state contains its queue.
        center.withdraw(within: Time.withdraw) { [weak self] waiting in
            guard let self, phase == .withdrawing else { return }
            // An unknown number counts as one loss.
            if waiting != 0 { losses.lostOutwards(waiting ?? 1, nil, .notSeen) }
            end()
        }
    }

    /// Ends the crossing and hands the state over.
    private func end() {
        guard phase == .withdrawing else { return }
        phase = .ended
        drainTimer = nil
        var state = SavedState(
            realm: configuration.realm, origin: configuration.origin, counts: exporter.counts, places: [], queue: [])
        importer.close(savingIn: &state)
        // The queue of posts outlives a reload.
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
                if PlantedFault.strikes(.sequencesForgotten) { state.places = [] }
                if PlantedFault.strikes(.numbersReused) { state.counts = firstCounts }
            #endif
            return state
        }
    }

    // MARK: Commands

    /// Removes all messages that the broker and the session keep of a host that is gone for good. Fails if there is no
    /// connection, or if another removal is in progress.
    func forget(
        _ origin: Origin, _ done: @escaping (Result<HostRemoval.Result, RoundTripTest.Failure>) -> Void
    ) {
        guard broker.isConnected, phase == .running else {
            // Without a reason (``reason``) the name of the state says it.
            let cause = reason.isEmpty ? broker.state.name : reason
            return done(.failure(.init(reason: "not connected to \(configuration.brokerText): \(cause)")))
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

    /// Removes a host and its values from the session, after the broker has removed the retained messages.
    private func hasForgotten(_ origin: Origin, _ result: HostRemoval.Result) {
        Log.notice("\(result.removed.count) retained messages of \(origin.text) are removed from the broker")
        if result.refused > 0 {
            Log.warning(
                "the broker refused to remove \(result.refused) retained messages of \(origin.text): \(result.reason)")
        }
        importer.forget(origin, topics: result.removed)
        importer.forgetValues(of: origin)
        // A host whose presence the broker still has stays announced.
        if importer.gate.hosts[origin] == nil { hosts.forget(origin) }
    }

    /// Sends a test message to the bridge itself through the broker.
    ///
    /// - Parameter done: receives the round-trip time, or the reason of the failure.
    func test(_ done: @escaping (Result<Duration, RoundTripTest.Failure>) -> Void) {
        guard broker.isConnected, phase == .running else {
            // Without a reason (``reason``) the name of the state says it.
            let cause = reason.isEmpty ? broker.state.name : reason
            return done(.failure(.init(reason: "not connected to \(configuration.brokerText): \(cause)")))
        }
        roundTrips.test(done)
    }
}

// MARK: Events of the session's notification service

extension BridgeInstance: CenterLinkDelegate {
    /// Exports a notification of the session.
    func arrived(_ notification: ArrivedNotification) {
        guard exporter.take(notification), let lastRemoval, phase == .running else { return }
        // The service reports the end of values ahead of queued notifications. A value that arrives behind such a
        // report may therefore have ended already, so the service is asked again for its values.
        guard context.now - lastRemoval < Time.behindRemoval else { return self.lastRemoval = nil }
        guard removalTimer == nil else { return }
        removalTimer = .once(milliseconds: Time.askAgain, on: context) { [unowned self] in
            removalTimer = nil
            values.ask()
        }
    }

    /// Reports notifications that the service dropped, and has it send its values again, because some may be among
    /// them.
    func missed(_ count: UInt64) {
        losses.lostOutwards(count, nil, .notSeen)
        exporter.values.noteMissed()
        catchUp()
    }

    /// Schedules a replay because of missed notifications, at most once in ``Time/betweenCatchUps``.
    private func catchUp() {
        guard phase == .running, catchUpTimer == nil else { return }
        let left = caughtUpAt.map { Time.betweenCatchUps - (context.now - $0) } ?? .zero
        let milliseconds = max(Int64(Time.replay), Int64(left / .milliseconds(1)))
        catchUpTimer = .once(milliseconds: UInt32(clamping: milliseconds), on: context) { [unowned self] in
            catchUpTimer = nil
            // The next service starts the replay.
            guard center.isThere else { return }
            caughtUpAt = context.now
            if exporter.values.mayLackValues { replay() }
        }
    }

    /// Asks the service for the wanted names.
    func interestChanged() { interest.ask() }

    /// Asks the service for its values, so that ended values are removed from the broker.
    func valuesRemoved() {
        lastRemoval = context.now
        values.ask()
    }

    /// Handles the appearance or the disappearance of the service. After 20 seconds without a service the bridge
    /// disconnects from the broker, which then queues messages. A service that appears is asked for everything again.
    func serviceChanged(isThere: Bool) {
        if !isThere { serviceWasAway = true }
        guard phase == .running else { return checkDrained() }
        guard isThere else {
            serviceTimer = .once(milliseconds: Time.withoutService, on: context) { [unowned self] in
                Log.notice("there is no notification center in the session: the broker queues messages")
                broker.end(as: .held, presence.offlineMessage)
            }
            return
        }
        if serviceWasAway {
            serviceWasAway = false
            // A service that ended may have retained a value whose notification never reached the bridge.
            exporter.values.noteMissed()
            catchUp()
        }
        serviceTimer = nil
        interest.ask(anew: true)
        values.ask(anew: true)
        losses.serviceAppeared()
        hosts.announceAll(importer.gate.hosts)
        announceConnection()
        posts.serviceAppeared()
    }

    /// Announces the state of the connection to the session.
    private func announceConnection() {
        hosts.announceConnection(broker.state == .connected, broker: configuration.brokerText, reason: reason)
    }
}

// MARK: Events of the broker

extension BridgeInstance: BrokerLinkDelegate {
    /// Announces the state of the connection to the session.
    func brokerChanged() {
        guard phase == .running, center.isThere else { return }
        announceConnection()
        // The service has come back while the bridge disconnected because of its absence.
        if broker.state == .held { broker.connect() }
    }

    /// Begins the work on a new connection: presence, subscriptions, comparisons of values, queued messages, probes.
    func brokerConnected(sessionPresent: Bool) {
        Log.notice(
            "connected to \(configuration.brokerText)\(sessionPresent ? ", which has kept the session" : "")")
        for remark in FileRemarks(configuration).all { Log.warning(remark) }
        if let reason = broker.missingGrant { Log.warning(reason) }
        presence.connected(sessionPresent: sessionPresent)
        if configuration.followsPresence { confirmation.begin() }
        importer.connected(sessionPresent: sessionPresent)
        ownValuesCheck.connected()
        losses.brokerConnected()
        exporter.pump()
        roundTrips.connected()
    }

    /// Sends a probe after queries, which finds out whether messages still pass (``RoundTrips``).
    func brokerHasShown() { if phase == .running { roundTrips.probe() } }

    /// Whether the bridge waits for answers of the broker, so that the connection should not be renewed now.
    var waitsForBroker: Bool {
        !exporter.isIdle || hostRemoval?.isOver == false || roundTrips.isWaiting || ownValuesCheck.isUnderWay
    }

    /// Ends all work that needs the connection. The exporter keeps unacknowledged messages.
    func brokerDisconnected(because error: MQTTError?) {
        ownValuesCheck.stop()
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

    /// Announces that hosts are offline because the broker has forgotten them.
    private func forget(_ hosts: [Origin]) {
        for origin in importer.endConfirmingHosts(hosts) {
            if let host = importer.gate.hosts[origin] { self.hosts.announce(origin, host, before: nil) }
        }
    }

    /// Passes a message of the broker to the part that it concerns.
    func brokerSent(_ publication: Publication) {
        if hostRemoval?.take(publication) == true { return }
        switch importer.take(publication) {
        case .own(let topic): takeOwn(publication, topic)
        case .presence(let origin, let host, let before):
            hosts.announce(origin, host, before: before)
            importer.follow(origin, host, before: before)
        case .ignored, .unwanted, .refused, .repeated, .message: break
        }
    }

    /// Handles a message on a topic of this host, which arrives only if the bridge has asked for it.
    private func takeOwn(_ publication: Publication, _ topic: BridgeTopic) {
        switch topic.subject {
        // A value without an object is retained on the topic of its notifications.
        case .notification(let name): ownValuesCheck.show(name, "", publication, now: environment.time())
        case .value(let name, let object): ownValuesCheck.show(name, object, publication, now: environment.time())
        case .test: roundTrips.received(publication)
        case .online: if phase == .running { presence.take(publication) }
        case .status: break
        }
    }

    /// Passes an acknowledgment on. Identifiers that a part does not know are ignored there.
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
