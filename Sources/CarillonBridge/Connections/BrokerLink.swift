// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// What a ``BrokerLink`` tells. Called on the loop's thread.
protocol BrokerLinkDelegate: AnyObject {
    func brokerChanged()
    /// - Parameter sessionPresent: whether the broker kept what there was.
    func brokerConnected(sessionPresent: Bool)
    /// A connection has ended.
    ///
    /// - Parameter error: nil when the bridge has ended it.
    func brokerDisconnected(because error: MQTTError?)
    func brokerSent(_ publication: Publication)
    func brokerAcknowledged(_ id: PacketID, _ reason: ReasonCode)
    func brokerSubscribed(_ id: PacketID, _ reasons: [ReasonCode])
    func brokerUnsubscribed(_ id: PacketID)
    /// Whether the bridge waits for an answer of the broker, so that the connection is not to be renewed now.
    var waitsForBroker: Bool { get }
    /// The broker has shown what it was asked for, and nothing else is asked for.
    func brokerHasShown()
}

/// The connection to the broker: made again and again, more and more seldom, and not at all while it would do harm.
final class BrokerLink {
    enum State: Equatable {
        /// What the session wants is not known yet.
        case starting
        case connecting
        case connected
        /// The next attempt is due.
        case waiting(reason: String)
        /// Another bridge has taken the name: both would throw each other out again and again.
        case takenOver
        /// There is nobody in the session to take anything; the broker keeps it.
        case held
        case stopped

        /// As programs read it.
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

    /// How long a bridge stays away whose name another one has taken.
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
        /// The connection is about to end.
        case never
    }

    private var renewal = Renewal.notDue
    /// When a query of this connection has ended; nil before.
    private var shownAt: SuspendingClock.Instant?
    private var renewalTimer: EventSource?
    private var renewalAge = ages.lowerBound
    private var renewedAt: SuspendingClock.Instant?
    /// How often it was put off as the bridge waited for the broker.
    private var delays = 0
    /// Whether the connection has taken, or is to take, the place of one on which the broker had dropped packets.
    private(set) var isRenewed = false
    /// How often reading was paused, and went on.
    private(set) var pauses: UInt64 = 0
    /// What is done when the last words have been said.
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

    /// The part of the requests that the broker does not grant on this connection; nil where it grants all.
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

    /// Says `lastWords` and ends the connection; the broker keeps the session.
    ///
    /// - Parameter done: called when that is over, which takes no longer than a second.
    func end(
        as state: State, _ lastWords: Publication?, reason: ReasonCode = .success, _ done: @escaping () -> Void = {}
    ) {
        timer = nil
        isRenewed = false
        // Somebody is in a hurry.
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

    /// A connection that the broker had taken is over.
    private func ended(because error: MQTTError?) {
        guard let connectedAt else { return }
        self.connectedAt = nil
        if renewal == .due { renewal = .notDue }
        (renewalTimer, delays, isRenewed, shownAt) = (nil, 0, false, nil)
        queries.connectionEnded()
        // A broker that takes a connection and ends it soon is as good as one that takes none.
        if context.now - connectedAt >= Self.timeOfGoodConnection { pause = 1_000 }
        delegate?.brokerDisconnected(because: error)
    }

    /// A connection that lasted so long was a good one.
    private static let timeOfGoodConnection = Duration.seconds(10)

    private func wait(because reason: String, milliseconds: UInt32? = nil) {
        isRenewed = false
        if state != .waiting(reason: reason) { Log.notice("no broker: \(reason)") }
        state = .waiting(reason: reason)
        // Not all hosts of a realm at once, when their broker comes back.
        tryAgain(in: milliseconds ?? pause - pause / 4 + UInt32(random() % UInt64(pause / 2 + 1)))
        pause = min(pause * 2, 60_000)
    }

    private func tryAgain(in milliseconds: UInt32) {
        timer = .once(milliseconds: milliseconds, on: context) { [unowned self] in connect() }
    }

    // MARK: Dropped packets

    /// A connection is renewed when it is as old as this: each time twice as old, until that was not necessary for two hours.
    private static let ages = Duration.seconds(10)...Duration.seconds(3_600)
    /// Seconds in which the bridge may get answers that it waits for. Some may be among what was dropped.
    private static let maxDelays = 30

    /// The broker has dropped packets for want of room. A message of them that it waits for an answer to stays in its window for
    /// ever, and nothing more comes when that is full; with the next connection it sends those again.
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
        Log.info("the broker has dropped packets: connecting anew")
        // If there is no next connection, others are told.
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

    /// The connection is about to end.
    func keepConnection() { (renewal, renewalTimer) = (.never, nil) }

    /// The broker has dropped something, for all that anybody knows.
    private func noteDropped() { if renewal == .notDue { renewal = .due } }

    /// Another bridge has the same realm, host and user: leaves it alone for a while, without a word that would be
    /// taken for its own.
    func giveWay() {
        guard isConnected else { return }
        client.disconnect(.success)
        ended(because: nil)
        stayAway()
    }

    private func stayAway() {
        Log.warning(
            "another bridge has connected with the same realm, host and user: this one stays away for "
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

    /// The identifier of the subscriptions to what is wanted; those of queries are higher.
    private static let wanted: UInt32 = 1

    /// Whether a publication came for a query only: it may have overtaken others, as nothing of it waits for a place in the
    /// window.
    static func isOfQuery(_ publication: Publication) -> Bool {
        !publication.subscriptions.isEmpty
            && publication.subscriptions.allSatisfy { $0 >= RetainedQueries.firstIdentifier }
    }

    /// - Parameter isTrial: whether it is for the caller only that the broker may refuse it.
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

    /// Has the broker show its retained messages of filters, which come as all others do.
    ///
    /// - Parameters:
    ///   - excludesOwn: whether messages that this bridge publishes meanwhile do not come.
    ///   - usesCanary: whether it matters that none is missing.
    ///   - done: called when the broker has shown them. Not called if the connection ends before, or there is none.
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

    /// Messages are missing, or have not come in time. The broker may have dropped them, if it has shown much.
    ///
    /// - Parameters:
    ///   - begin: since when they are waited for; nil for now.
    ///   - mayBeOlder: whether they may be missing since before this connection: with that the broker has sent all again that it
    ///     had.
    /// - Returns: false where that is no reason for a new connection.
    @discardableResult
    func noteMissing(since begin: SuspendingClock.Instant? = nil, mayBeOlder: Bool) -> Bool {
        guard isConnected, let shownAt, (begin ?? context.now) - shownAt < Self.timeOfDoubt,
            !(mayBeOlder && isRenewed)
        else { return false }
        noteDropped()
        renewWhenIdle()
        return true
    }

    /// The time behind a query in which messages that are missing may have been dropped for it.
    private static let timeOfDoubt = Duration.seconds(120)

    /// A topic on which the broker has a message for certain, and a filter for it that nobody else uses.
    var canary: (topic: String, filter: String)? {
        get { queries.canary }
        set { queries.canary = newValue }
    }

    /// Whether what the broker sends by the session's subscriptions may be old, as it kept it for this session.
    var mayBeQueued: Bool { queue.mayComeStill(now: context.now) }

    /// Whether the broker lets this client see the canary, for all that anybody knows.
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
        // A message that is published while a query is open comes by the subscription to it as well, in its order.
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
