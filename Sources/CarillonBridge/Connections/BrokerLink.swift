// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The receiver of the events of a ``BrokerLink``: ``BridgeInstance``. Called on the loop's thread.
protocol BrokerLinkDelegate: AnyObject {
    /// Called when the state of the link, or the reason in its status, has changed.
    func brokerChanged()
    /// Called when the broker has accepted a connection.
    ///
    /// - Parameter sessionPresent: whether the broker has kept the session.
    func brokerConnected(sessionPresent: Bool)
    /// Called when an accepted connection has ended.
    ///
    /// - Parameter error: nil if the bridge itself has ended it.
    func brokerDisconnected(because error: MQTTError?)
    /// Called for each message of the broker.
    func brokerSent(_ publication: Publication)
    /// Called when the broker has acknowledged or refused a publication.
    func brokerAcknowledged(_ id: PacketID, _ reason: ReasonCode)
    /// Called when the broker has answered a subscription.
    func brokerSubscribed(_ id: PacketID, _ reasons: [ReasonCode])
    /// Called when the broker has answered an unsubscription.
    func brokerUnsubscribed(_ id: PacketID)
    /// Whether the bridge waits for an answer of the broker, so that the link should not renew the connection now.
    var waitsForBroker: Bool { get }
    /// Called when the broker has answered a query and no other query is open.
    func brokerHasShown()
}

/// The connection to the broker, which a ``BridgeInstance`` owns. It reconnects with growing pauses, sends and receives
/// messages, queries retained messages, and renews a connection on which the broker has dropped messages. It does not
/// reconnect after another bridge with the same identity has connected, and while the session has no notification
/// service.
final class BrokerLink {
    /// The state of the link.
    enum State: Equatable {
        /// The link has not connected yet, because the wanted names are not known.
        case starting
        case connecting
        case connected
        /// The pause before the next attempt.
        case waiting(reason: String)
        /// Another bridge has the same realm, host and user. Both would disconnect each other again and again, so this
        /// one waits for some minutes.
        case takenOver
        /// The session has no notification service. The broker queues the messages.
        case held
        /// The link has ended for good.
        case stopped

        /// The name of the state in the bridge's status.
        var name: String {
            switch self {
            case .starting: "starting"
            case .connecting: "connecting"
            case .connected: "connected"
            case .waiting: "waiting"
            case .takenOver: "taken-over"
            case .held: "held"
            case .stopped: "stopped"
            }
        }
    }

    /// The pause after another bridge has connected with the same identity, in milliseconds.
    static let patienceAfterTakeover: UInt32 = 300_000

    weak var delegate: (any BrokerLinkDelegate)?
    private let client: any BrokerClient
    private let context: MainContext
    /// Returns random bits, which spread the attempts of several hosts.
    private let random: () -> UInt64
    /// The present state.
    private(set) var state = State.starting {
        didSet { if state != oldValue { delegate?.brokerChanged() } }
    }
    /// The limits that the broker announced on the last connection; nil before the first.
    private(set) var limits: BrokerLimits?
    /// The broker's answers to subscriptions.
    private var grants = Grants()
    /// The queries of retained messages.
    private var queries: RetainedQueries!
    /// The estimate whether the broker still sends messages that it has queued for the session.
    private var queue = SessionQueueEstimate()
    /// The next pause before an attempt, in milliseconds.
    private var pause: UInt32 = 1_000
    /// Runs before the next attempt, or limits the end of the connection.
    private var timer: EventSource?
    /// The time at which the broker accepted the connection; nil without one.
    private(set) var connectedAt: SuspendingClock.Instant?
    /// The renewal of the present connection, because the broker has dropped messages on it.
    private enum Renewal {
        /// No message was dropped.
        case notDue
        /// The broker has dropped messages, and the bridge reconnects when it is idle.
        case due
        /// The bridge drains and then ends the connection itself, so neither this connection nor a later one of this
        /// link is renewed (``keepConnection()``).
        case never
    }

    /// Whether the present connection is to be renewed.
    private var renewal = Renewal.notDue
    /// The time of the last answer to a query of this connection; nil before the first.
    private var shownAt: SuspendingClock.Instant?
    /// Runs before the next check whether to renew.
    private var renewalTimer: EventSource?
    /// The minimum age of the connection for its renewal.
    private var renewalAge = ages.lowerBound
    /// The time of the last renewal.
    private var renewedAt: SuspendingClock.Instant?
    /// The number of times that the renewal was delayed because the bridge waited for the broker.
    private var delays = 0
    /// Whether the present or next connection replaces one on which the broker had dropped messages.
    private(set) var isRenewed = false
    /// The number of changes of ``isReadingPaused``, by which a user notices that reading was paused meanwhile.
    private(set) var pauses: UInt64 = 0
    /// The pending end of the connection, which follows the acknowledgment of the last publication (`id`). `then` is
    /// the state afterwards.
    private var pendingEnd: (id: PacketID?, then: State, reason: ReasonCode, done: () -> Void)?

    /// Creates a link without a connection.
    ///
    /// - Throws: an error for invalid settings.
    init(
        _ settings: MQTTClient.Settings, _ environment: BridgeEnvironment, context: MainContext
    ) throws(MQTTError) {
        client = try environment.makeBrokerClient(settings, context)
        random = environment.random
        self.context = context
        client.delegate = self
        queries = RetainedQueries(
            context: context, subscribe: { [unowned self] in subscribe($0, as: $1) },
            unsubscribe: { [unowned self] in unsubscribe($0) })
    }

    /// The reason why the broker does not grant all requests on this connection; nil if it grants all.
    var missingGrant: String? { grants.reason(limits) }

    /// Whether there is an accepted connection that is not about to end.
    var isConnected: Bool { state == .connected && pendingEnd == nil }

    /// Begins to connect, with the session that the broker may have kept.
    func connect() {
        timer = nil
        // The link is about to end the connection itself.
        guard pendingEnd == nil else { return }
        state = .connecting
        do throws(MQTTError) {
            try client.connect(startsClean: false)
        } catch {
            wait(because: error.description)
        }
    }

    /// Publishes a last message and ends the connection; the broker keeps the session.
    ///
    /// - Parameters:
    ///   - state: the state afterwards.
    ///   - lastMessage: the last message; nil for none.
    ///   - done: called when the connection has ended, after one second at most.
    func end(
        as state: State, _ lastMessage: Publication?, reason: ReasonCode = .success, _ done: @escaping () -> Void = {}
    ) {
        timer = nil
        isRenewed = false
        // If a call is in progress, it ends now.
        finishEnd()
        guard self.state == .connected else {
            client.disconnect(reason)
            self.state = state
            return done()
        }
        queries.withdraw()
        let id = lastMessage.flatMap { try? client.publish($0) }
        pendingEnd = (id, state, reason, done)
        if id == nil { return finishEnd() }
        timer = .once(milliseconds: 1_000, on: context) { [unowned self] in finishEnd() }
    }

    /// Ends the connection, because the last message is acknowledged or the time limit has passed.
    private func finishEnd() {
        guard let pendingEnd else { return }
        self.pendingEnd = nil
        timer = nil
        client.disconnect(pendingEnd.reason)
        ended(because: nil)
        state = pendingEnd.then
        pendingEnd.done()
    }

    /// Resets everything that belongs to an accepted connection, and informs the delegate. After an attempt that was
    /// never accepted it does nothing.
    private func ended(because error: MQTTError?) {
        guard let connectedAt else { return }
        self.connectedAt = nil
        if renewal == .due { renewal = .notDue }
        (renewalTimer, delays, isRenewed, shownAt) = (nil, 0, false, nil)
        queries.connectionEnded()
        // A connection that the broker ends soon after accepting it counts as refused, so that the pause keeps growing.
        if context.now - connectedAt >= Self.timeOfGoodConnection { pause = 1_000 }
        delegate?.brokerDisconnected(because: error)
    }

    /// The age at which a connection counts as a success.
    private static let timeOfGoodConnection = Duration.seconds(10)

    /// Schedules the next attempt, after a pause that doubles with each failure, up to one minute. A random part of up
    /// to a quarter is added to the pause or subtracted.
    ///
    /// - Parameter reason: the reason why there is no connection, for the log and the status.
    private func wait(because reason: String) {
        isRenewed = false
        if state != .waiting(reason: reason) { Log.notice("not connected to the broker: \(reason)") }
        state = .waiting(reason: reason)
        // Randomized, so that the hosts of a realm do not all reconnect at once when their broker comes back.
        tryAgain(in: pause - pause / 4 + UInt32(random() % UInt64(pause / 2 + 1)))
        pause = min(pause * 2, 60_000)
    }

    /// Starts the timer of the next attempt.
    private func tryAgain(in milliseconds: UInt32) {
        timer = .once(milliseconds: milliseconds, on: context) { [unowned self] in connect() }
    }

    // MARK: Renewal after dropped messages

    /// The minimum age of a connection for its renewal. It doubles with each renewal, and is reset after two hours
    /// without one.
    private static let ages = Duration.seconds(10)...Duration.seconds(3_600)
    /// The maximum number of delays of a renewal, one second each, in which the bridge may receive pending answers.
    /// Some answers may be among the dropped messages.
    private static let maxDelays = 30

    /// Renews a connection on which the broker has dropped messages for lack of buffer space, if it is idle and old
    /// enough.
    ///
    /// A dropped message stays in the broker's in-flight window as unacknowledged, and a full window stops all further
    /// messages. On the next connection the broker sends unacknowledged messages again.
    ///
    /// These conditions apply:
    /// - A renewal is due, and the bridge does not drain.
    /// - No query is in progress, and the broker has shown the canary once (``RetainedQueries/hasSeenCanary``). An
    ///   access list may forbid the canary. It is then missing in each answer, which is no evidence of dropped
    ///   messages.
    /// - The connection is old enough, so that a broker that drops messages all the time is not renewed all the time.
    /// - The bridge waits for no answer of the broker, or it has waited for 30 seconds.
    private func renewWhenIdle() {
        guard renewal == .due, isConnected, queries.isIdle, queries.hasSeenCanary, renewalTimer == nil, let connectedAt
        else {
            return
        }
        if let renewedAt, context.now - renewedAt > Self.ages.upperBound * 2 { renewalAge = Self.ages.lowerBound }
        let left = renewalAge - (context.now - connectedAt)
        guard left <= .zero else { return renewLater(UInt32(left / .milliseconds(1)) + 1) }
        guard delegate?.waitsForBroker != true || delays >= Self.maxDelays else {
            delays += 1
            return renewLater(1_000)
        }
        Log.info("the broker has dropped packets: reconnecting")
        // With this reason the broker publishes the last will if no connection follows in time.
        client.disconnect(.disconnectWithWill)
        ended(because: nil)
        isRenewed = true
        renewedAt = context.now
        renewalAge = min(renewalAge * 2, Self.ages.upperBound)
        connect()
    }

    /// Starts the timer of the next check.
    private func renewLater(_ milliseconds: UInt32) {
        renewalTimer = .once(milliseconds: milliseconds, on: context) { [unowned self] in
            renewalTimer = nil
            renewWhenIdle()
        }
    }

    /// Prevents renewals from now on, because the bridge drains and then ends the connection itself.
    func keepConnection() { (renewal, renewalTimer) = (.never, nil) }

    /// Notes that the broker has probably dropped messages.
    private func noteDropped() { if renewal == .notDue { renewal = .due } }

    /// Disconnects for some minutes, because another bridge with the same realm, host and user is alive. It does not
    /// publish that the host is offline, because the host of the other bridge is the same.
    func disconnectForOther() {
        guard isConnected else { return }
        client.disconnect(.success)
        ended(because: nil)
        waitAfterTakeover()
    }

    /// Waits until the next attempt after another bridge has connected.
    private func waitAfterTakeover() {
        Log.warning(
            "another bridge has connected with the same realm, host and user: reconnecting in "
                + "\(Self.patienceAfterTakeover / 60_000) minutes; give one of them another name in bridge.conf")
        (state, isRenewed) = (.takenOver, false)
        tryAgain(in: Self.patienceAfterTakeover)
    }

    // MARK: Sending

    /// Publishes a message, and remembers the content of the canary.
    func publish(_ publication: Publication) throws(MQTTError) -> PacketID {
        let id = try client.publish(publication)
        if publication.topic == canary?.topic { queries.canaryContent = .init(publication) }
        return id
    }

    /// The subscription identifier of all subscriptions except those of queries, which have higher ones.
    private static let wanted: UInt32 = 1

    /// Whether a message arrived only through queries (``RetainedQueries``). Such a message may have overtaken others:
    /// with quality of service 0 it does not wait for the broker's in-flight window.
    static func isOfQuery(_ publication: Publication) -> Bool {
        !publication.subscriptions.isEmpty
            && publication.subscriptions.allSatisfy { $0 >= RetainedQueries.firstIdentifier }
    }

    /// Subscribes to filters.
    ///
    /// - Parameter isTrial: whether a refusal by the broker concerns the caller only, and not the status.
    /// - Returns: nil if nothing was sent.
    func subscribe(_ filters: [TopicFilter], isTrial: Bool = false) -> PacketID? {
        subscribe(filters, as: Self.wanted, isTrial: isTrial)
    }

    private func subscribe(_ filters: [TopicFilter], as identifier: UInt32, isTrial: Bool = false) -> PacketID? {
        guard isConnected, !filters.isEmpty else { return nil }
        var filters = filters
        if limits?.identifiersAvailable != false {
            for index in filters.indices { filters[index].identifier = identifier }
        }
        do throws(MQTTError) {
            let id = try client.subscribe(filters)
            if !isTrial { grants.asked(filters, id) }
            return id
        } catch {
            Log.warning("can't subscribe: \(error)")
            return nil
        }
    }

    /// Ends subscriptions.
    ///
    /// - Returns: nil if nothing was sent.
    @discardableResult
    func unsubscribe(_ topics: [String]) -> PacketID? {
        guard isConnected, !topics.isEmpty else { return nil }
        do throws(MQTTError) {
            grants.gaveUp(topics)
            return try client.unsubscribe(topics)
        } catch {
            Log.warning("can't unsubscribe: \(error)")
            return nil
        }
    }

    /// Queries the broker for the retained messages of filters, which arrive like all other messages.
    ///
    /// - Parameters:
    ///   - excludesOwn: whether messages that this bridge publishes meanwhile do not arrive.
    ///   - usesCanary: whether the query uses a canary, which reveals dropped messages (``RetainedQueries``).
    ///   - done: called when the broker has shown them. Not called if the connection ends before, or if there is none.
    func showRetained(
        _ filters: [String], excludesOwn: Bool = true, usesCanary: Bool = false,
        _ done: @escaping (_ answer: RetainedQueries.Answer) -> Void
    ) {
        guard isConnected else { return }
        queries.ask(filters, excludesOwn: excludesOwn, usesCanary: usesCanary) { [weak self] answer in
            if !answer.isComplete { self?.noteDropped() }
            done(answer)
            guard let self else { return }
            shownAt = context.now
            renewWhenIdle()
            if queries.isIdle, isConnected { delegate?.brokerHasShown() }
        }
    }

    /// Notes that messages are missing or late. After a query the broker may have dropped them, which is a reason to
    /// renew the connection.
    ///
    /// - Parameters:
    ///   - begin: the time since when they are awaited; nil for now.
    ///   - mayBeOlder: whether they may be missing since before this connection. Then a renewed connection is not
    ///     renewed again: the broker has already sent its unacknowledged messages again.
    /// - Returns: whether a query on this connection may be the cause of the missing messages. The connection is then
    ///   renewed when it is idle, unless the bridge ends before.
    @discardableResult
    func noteMissing(since begin: SuspendingClock.Instant? = nil, mayBeOlder: Bool) -> Bool {
        guard isConnected, let shownAt, (begin ?? context.now) - shownAt < Self.suspicionTime,
            !(mayBeOlder && isRenewed)
        else { return false }
        noteDropped()
        renewWhenIdle()
        return true
    }

    /// The time after a query in which missing messages may have been dropped because of it.
    private static let suspicionTime = Duration.seconds(120)

    /// The canary: a topic on which the broker certainly has a message, and a filter for it that no other subscription
    /// uses.
    var canary: (topic: String, filter: String)? {
        get { queries.canary }
        set { queries.canary = newValue }
    }

    /// Whether a message of a subscription may be old, because the broker had queued it for this session.
    var mayBeQueued: Bool { queue.mayStillDeliver(now: context.now) }

    /// Whether the broker has ever shown the canary to this client. If not, a missing canary is no evidence of dropped
    /// messages.
    var showsCanary: Bool { queries.hasSeenCanary }

    /// Whether the bridge does not read from the broker (backpressure).
    var isReadingPaused: Bool {
        get { client.isReadingPaused }
        set {
            guard client.isReadingPaused != newValue else { return }
            client.isReadingPaused = newValue
            pauses += 1
            if newValue { queue.pause(now: context.now) } else { queue.resume(now: context.now) }
        }
    }
}

/// Events of the MQTT client.
extension BrokerLink: MQTTClientDelegate {
    func connected(sessionPresent: Bool, limits: BrokerLimits) {
        self.limits = limits
        grants.begin()
        connectedAt = context.now
        state = .connected
        queue.begin(sessionPresent: sessionPresent, isPaused: isReadingPaused, now: context.now)
        queries.connected(sessionPresent: sessionPresent, identifiersAvailable: limits.identifiersAvailable)
        delegate?.brokerConnected(sessionPresent: sessionPresent)
    }

    /// Handles the end of a connection or attempt that this link did not end itself.
    func disconnected(_ error: MQTTError) {
        ended(because: error)
        if pendingEnd != nil { return finishEnd() }
        switch state {
        // A late event: in these states the link wants no connection.
        case .starting, .stopped, .held: return
        case .connecting, .connected, .waiting, .takenOver: break
        }
        guard error.reason == .sessionTakenOver else { return wait(because: error.description) }
        waitAfterTakeover()
    }

    /// Passes a message on. Retained messages may also be answers to queries.
    func received(_ publication: Publication) {
        if publication.isRetained { queries.received(publication) }
        // A message that is published during a query also arrives through its ordinary subscription, in order. The copy
        // of the query is ignored.
        if publication.isRetained || !Self.isOfQuery(publication) { delegate?.brokerSent(publication) }
    }

    /// Passes an acknowledgment on, or ends the connection after the last message.
    func acknowledged(_ id: PacketID, _ reason: ReasonCode) {
        if let pendingEnd, pendingEnd.id == id { return finishEnd() }
        delegate?.brokerAcknowledged(id, reason)
    }

    /// Passes the answer to a subscription on, and logs a refusal.
    func subscribed(_ id: PacketID, _ reasons: [ReasonCode]) {
        if let words = grants.answered(id, reasons) {
            Log.warning(words)
            delegate?.brokerChanged()
        }
        queries.answered(id, reasons)
        delegate?.brokerSubscribed(id, reasons)
    }

    func unsubscribed(_ id: PacketID) {
        queries.ended(id)
        delegate?.brokerUnsubscribed(id)
    }
}
