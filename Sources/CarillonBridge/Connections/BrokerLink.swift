// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The receiver of the events of a ``BrokerLink``. Called on the loop's thread.
protocol BrokerLinkDelegate: AnyObject {
    func brokerChanged()
    /// - Parameter sessionPresent: whether the broker has kept the session.
    func brokerConnected(sessionPresent: Bool)
    /// Called when a connection has ended.
    ///
    /// - Parameter error: nil if the bridge has ended it.
    func brokerDisconnected(because error: MQTTError?)
    func brokerSent(_ publication: Publication)
    func brokerAcknowledged(_ id: PacketID, _ reason: ReasonCode)
    func brokerSubscribed(_ id: PacketID, _ reasons: [ReasonCode])
    func brokerUnsubscribed(_ id: PacketID)
    /// Whether the bridge waits for an answer of the broker, so that the link must not renew the connection now.
    var waitsForBroker: Bool { get }
    /// Called when the broker has answered a query and no other query is open.
    func brokerHasShown()
}

/// The connection to the broker. It reconnects with growing pauses, and not at all while a connection would do harm.
final class BrokerLink {
    enum State: Equatable {
        /// The names that the session wants are not known yet.
        case starting
        case connecting
        case connected
        /// The next attempt is scheduled.
        case waiting(reason: String)
        /// Another bridge has the same realm, host and user: both would disconnect each other again and again.
        case takenOver
        /// The session has no service that takes messages; the broker keeps them.
        case held
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

    /// The time for which the bridge stays away after another one has taken its place, in milliseconds.
    static let patienceAfterTakeover: UInt32 = 300_000

    weak var delegate: (any BrokerLinkDelegate)?
    private let client: any BrokerClient
    private let context: MainContext
    private let random: () -> UInt64
    private(set) var state = State.starting {
        didSet { if state != oldValue { delegate?.brokerChanged() } }
    }
    private(set) var limits: BrokerLimits?
    private var grants = Grants()
    private var queries: RetainedQueries!
    private var queue = SessionQueue()
    private var pause: UInt32 = 1_000
    private var timer: EventSource?
    private(set) var connectedAt: SuspendingClock.Instant?
    private enum Renewal {
        case notDue
        /// The broker has dropped packets on this connection.
        case due
        /// The connection is about to end, so it is not renewed.
        case never
    }

    private var renewal = Renewal.notDue
    /// The time of the last answer to a query of this connection; nil before the first.
    private var shownAt: SuspendingClock.Instant?
    private var renewalTimer: EventSource?
    private var renewalAge = ages.lowerBound
    private var renewedAt: SuspendingClock.Instant?
    /// The number of times that the renewal was put off because the bridge waited for the broker.
    private var delays = 0
    /// Whether the connection replaces, or is about to replace, a connection on which the broker had dropped packets.
    private(set) var isRenewed = false
    /// The number of times that reading was paused or resumed.
    private(set) var pauses: UInt64 = 0
    /// The end of the connection that waits for the acknowledgment of the last publication.
    private var farewell: (id: PacketID?, then: State, reason: ReasonCode, done: () -> Void)?

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

    var isConnected: Bool { state == .connected && farewell == nil }

    func connect() {
        timer = nil
        guard farewell == nil else { return }
        state = .connecting
        do throws(MQTTError) {
            try client.connect(startsClean: false)
        } catch {
            wait(because: error.description)
        }
    }

    /// Publishes `lastWords` and ends the connection; the broker keeps the session.
    ///
    /// - Parameter done: called when the connection has ended, after one second at most.
    func end(
        as state: State, _ lastWords: Publication?, reason: ReasonCode = .success, _ done: @escaping () -> Void = {}
    ) {
        timer = nil
        isRenewed = false
        // Another call ends a farewell that is in progress.
        endFarewell()
        guard self.state == .connected else {
            client.disconnect(reason)
            self.state = state
            return done()
        }
        queries.withdraw()
        let id = lastWords.flatMap { try? client.publish($0) }
        farewell = (id, state, reason, done)
        if id == nil { return endFarewell() }
        timer = .once(milliseconds: 1_000, on: context) { [unowned self] in endFarewell() }
    }

    private func endFarewell() {
        guard let farewell else { return }
        self.farewell = nil
        timer = nil
        client.disconnect(farewell.reason)
        ended(because: nil)
        state = farewell.then
        farewell.done()
    }

    /// Cleans up after a connection that the broker had accepted.
    private func ended(because error: MQTTError?) {
        guard let connectedAt else { return }
        self.connectedAt = nil
        if renewal == .due { renewal = .notDue }
        (renewalTimer, delays, isRenewed, shownAt) = (nil, 0, false, nil)
        queries.connectionEnded()
        // A connection that the broker ends soon after accepting it counts as refused: the pause keeps growing.
        if context.now - connectedAt >= Self.timeOfGoodConnection { pause = 1_000 }
        delegate?.brokerDisconnected(because: error)
    }

    /// The minimum age of a good connection.
    private static let timeOfGoodConnection = Duration.seconds(10)

    private func wait(because reason: String, milliseconds: UInt32? = nil) {
        isRenewed = false
        if state != .waiting(reason: reason) { Log.notice("no broker: \(reason)") }
        state = .waiting(reason: reason)
        // Randomized, so that the hosts of a realm do not all reconnect at once when their broker comes back.
        tryAgain(in: milliseconds ?? pause - pause / 4 + UInt32(random() % UInt64(pause / 2 + 1)))
        pause = min(pause * 2, 60_000)
    }

    private func tryAgain(in milliseconds: UInt32) {
        timer = .once(milliseconds: milliseconds, on: context) { [unowned self] in connect() }
    }

    // MARK: Dropped packets

    /// The age at which a connection is renewed. It doubles with each renewal, and is reset after two hours without
    /// one.
    private static let ages = Duration.seconds(10)...Duration.seconds(3_600)
    /// The maximum number of delays of a renewal, one second each, in which the bridge may get pending answers. Some of
    /// these may be among the dropped packets.
    private static let maxDelays = 30

    /// Renews an idle connection on which the broker has dropped packets for lack of buffer space. A dropped message
    /// stays unacknowledged in the broker's in-flight window, and a full window stops all further messages. On the next
    /// connection the broker sends unacknowledged messages again.
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
        // The broker publishes the last will if no connection follows in time.
        client.disconnect(.disconnectWithWill)
        ended(because: nil)
        isRenewed = true
        renewedAt = context.now
        renewalAge = min(renewalAge * 2, Self.ages.upperBound)
        connect()
    }

    private func renewLater(_ milliseconds: UInt32) {
        renewalTimer = .once(milliseconds: milliseconds, on: context) { [unowned self] in
            renewalTimer = nil
            renewWhenIdle()
        }
    }

    /// Prevents the renewal of a connection that is about to end.
    func keepConnection() { (renewal, renewalTimer) = (.never, nil) }

    /// Notes that the broker has probably dropped packets.
    private func noteDropped() { if renewal == .notDue { renewal = .due } }

    /// Stays away for a while, because another bridge has the same realm, host and user. Publishes no farewell, which
    /// would count as the other bridge's.
    func giveWay() {
        guard isConnected else { return }
        client.disconnect(.success)
        ended(because: nil)
        stayAway()
    }

    private func stayAway() {
        Log.warning(
            "another bridge has connected with the same realm, host and user: reconnecting in "
                + "\(Self.patienceAfterTakeover / 60_000) minutes; give one of them another name in bridge.conf")
        (state, isRenewed) = (.takenOver, false)
        tryAgain(in: Self.patienceAfterTakeover)
    }

    // MARK: Sending

    func publish(_ publication: Publication) throws(MQTTError) -> PacketID {
        let id = try client.publish(publication)
        if publication.topic == canary?.topic { queries.canaryContent = .init(publication) }
        return id
    }

    /// The identifier of the subscriptions to wanted names; queries have higher ones.
    private static let wanted: UInt32 = 1

    /// Whether a publication arrived through queries only. It may have overtaken others: messages with quality of
    /// service 0 do not wait for a place in the window.
    static func isOfQuery(_ publication: Publication) -> Bool {
        !publication.subscriptions.isEmpty
            && publication.subscriptions.allSatisfy { $0 >= RetainedQueries.firstIdentifier }
    }

    /// - Parameter isTrial: whether a refusal by the broker concerns the caller only.
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

    /// Has the broker show the retained messages of filters, which arrive like all others.
    ///
    /// - Parameters:
    ///   - excludesOwn: whether messages that this bridge publishes meanwhile do not arrive.
    ///   - usesCanary: whether a canary is to reveal dropped messages.
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

    /// Notes that messages are missing or late. The broker may have dropped them if it has shown many retained
    /// messages.
    ///
    /// - Parameters:
    ///   - begin: the time since when they are awaited; nil for now.
    ///   - mayBeOlder: whether they may be missing since before this connection. On a renewed connection the broker has
    ///     already sent its unacknowledged messages again.
    /// - Returns: false if this is no reason for a new connection.
    @discardableResult
    func noteMissing(since begin: SuspendingClock.Instant? = nil, mayBeOlder: Bool) -> Bool {
        guard isConnected, let shownAt, (begin ?? context.now) - shownAt < Self.timeOfDoubt,
            !(mayBeOlder && isRenewed)
        else { return false }
        noteDropped()
        renewWhenIdle()
        return true
    }

    /// The time after a query in which missing messages may have been dropped because of it.
    private static let timeOfDoubt = Duration.seconds(120)

    /// A topic on which the broker certainly has a message, and a filter for it that no other subscription uses.
    var canary: (topic: String, filter: String)? {
        get { queries.canary }
        set { queries.canary = newValue }
    }

    /// Whether messages of the session's subscriptions may be old, because the broker kept them for this session.
    var mayBeQueued: Bool { queue.mayComeStill(now: context.now) }

    /// Whether the broker has ever shown the canary to this client.
    var showsCanary: Bool { queries.hasSeenCanary }

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

    func disconnected(_ error: MQTTError) {
        ended(because: error)
        if farewell != nil { return endFarewell() }
        switch state {
        case .starting, .stopped, .held: return
        case .connecting, .connected, .waiting, .takenOver: break
        }
        guard error.reason == .sessionTakenOver else { return wait(because: error.description) }
        stayAway()
    }

    func received(_ publication: Publication) {
        if publication.isRetained { queries.received(publication) }
        // A message that is published during a query also arrives through its ordinary subscription, in order.
        if publication.isRetained || !Self.isOfQuery(publication) { delegate?.brokerSent(publication) }
    }

    func acknowledged(_ id: PacketID, _ reason: ReasonCode) {
        if let farewell, farewell.id == id { return endFarewell() }
        delegate?.brokerAcknowledged(id, reason)
    }

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
