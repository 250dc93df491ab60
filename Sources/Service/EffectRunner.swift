// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The executor of the core's effects: it sends signals and probes, starts timers, writes the recovery log, and logs.
///
/// ``CenterDriver`` passes it the effects of each event. It writes the changes to the store first, then carries out the
/// effects in their order: on the channel of a client that has one, otherwise on the bus. Later results, such as an
/// acknowledgment, go back to the core as events (``report``).
///
/// It also finds out which messages have not reached their clients. The bus reports that it refused a signal by the
/// signal's serial (``SentSignals``). Barriers show which messages the bus has carried (``DeliveryReceipts``).
///
/// Threads: that of the bus's context. Nothing here blocks, except writes to the recovery log.
final class EffectRunner {
    /// A later result of an effect, which is an event for the core. ``CenterDriver`` maps each to a method of the core.
    enum Event {
        /// The client answered a probe: it has read all messages before it.
        case answered(ClientName)
        /// The client answered a probe of the replies that it gets on the bus beside its channel.
        case repliesAnswered(ClientName)
        /// A socket backlog probe found whether the client has read these replies.
        case replyBacklogProbed(ClientName, hasRead: Bool)
        /// An event of the client's channel.
        case ofChannel(Channels.Event)
        /// A socket backlog probe found whether the client has read its messages.
        case backlogProbed(ClientName, hasRead: Bool)
        /// The bus refused a signal with this content.
        case deliveryRefused(ClientName, SentSignals.SignalContent)
        /// The bus refused a probe. `isCounted`: whether this bus reports each refused signal.
        case probeRefused(ClientName, isCounted: Bool)
        /// The timer after the client's application became inactive has ended. `epoch`: the number of that timer.
        case inactivityTimerEnded(ClientName, epoch: UInt64)
        /// The client's minimum interval has ended.
        case intervalTimerEnded(ClientName)
    }

    /// Passes an event to the core. Set before the first effect.
    var report: ((Event) -> Void)!
    /// Called with a watched connection that was found to have left the bus.
    var onGone: ((ClientName) -> Void)!
    /// Called when a client is new, or was restored from an earlier process.
    var onWatched: ((ClientName) -> Void)?
    /// Called when the core has forgotten a connection.
    var onForgotten: ((ClientName) -> Void)?
    /// The persistent state; nil where none is kept.
    var store: RecoveryStore? {
        didSet { receipts = store.map(makeReceipts) }
    }
    /// The confirmation of sent messages to the store; nil without a store.
    private var receipts: DeliveryReceipts?
    /// The monitor of the activity of applications on the desktop; nil until it is started.
    var activity: ActivityMonitor?

    /// The other sessions of the machine; nil until they are joined.
    var sessions: Sessions?
    /// Returns the unique name of the service's own connection; nil until it is known.
    var ownName: () -> ClientName? = { nil }

    private unowned let bus: any MessageBus
    private let clients: ClientRegistry
    private let barrier: BusBarrier
    /// Sends probes.
    private let prober: ClientProber
    /// Looks at the unread bytes of clients' sockets, for clients that do not answer probes.
    private let backlogProbe: SocketBacklogProbe
    /// The queue through which replies to calls and answers to posts on channels go out.
    let answers = ReplyQueue()
    /// The channels of clients.
    let channels: Channels
    /// The message serial of the last signal that was sent here. These serials are in the upper half of the range, so
    /// that a refused signal is recognized by its serial. The connection numbers all other messages in the lower half.
    private var lastSignal = firstSignal
    private static let firstSignal: UInt32 = 1 << 31
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    /// The receivers and contents of the last signals, by serial.
    private var sentSignals = SentSignals()
    /// The encoded message header of notifications to each client, which is the same for all of them.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var heads = ClientTable<EncodedHeader>()
    /// Whether the bus is known to return an error for each refused signal, as dbus-daemon does. Losses are then known
    /// exactly. dbus-broker refuses signals silently.
    private var busReportsRefusals = false
    /// The clients with a channel for which a socket backlog probe of their replies on the bus was requested.
    private var probedReplies: Set<ClientName> = []
    /// The number of losses that began for each client, for throttled logging.
    private var overflows: [ClientName: UInt64] = [:]
    /// The requests whose barrier the bus refused, until they are repeated.
    private var refusedBarriers: [RefusedBarrier] = []
    /// The timer that repeats them.
    private var barrierRetryTimer: EventSource?
    /// The pause before a refused barrier is repeated, in milliseconds.
    private static let pauseForBus: UInt32 = 1000
    /// The timers of clients whose application became inactive, including expired timers.
    private var inactivityTimers: [ClientName: EventSource] = [:]
    /// The timers of the current minimum intervals of clients, including expired timers.
    private var intervalTimers: [ClientName: EventSource] = [:]

    /// - Parameter bus: the bus on which signals are sent; the caller keeps it.
    init(bus: any MessageBus, clients: ClientRegistry, barrier: BusBarrier, machine: Machine) {
        self.bus = bus
        self.clients = clients
        self.barrier = barrier
        let prober = ClientProber(bus: bus, barrier: barrier)
        self.prober = prober
        backlogProbe = SocketBacklogProbe(
            bus: bus, socket: { [unowned bus] in (bus as? Connection)?.socket }, sockets: machine.sockets,
            work: BlockingWork(on: bus.context, priority: .of(.control)))
        channels = Channels(on: bus.context, prober: prober, backlogProbe: backlogProbe)
        channels.report = { [unowned self] event in report(.ofChannel(event)) }
        channels.sendOnBus = { [unowned self] effects in
            let now = bus.context.now
            bus.batchSends {
                for effect in effects { carryOut(effect, at: now, over: bus) }
            }
            receipts?.eventEnded()
        }
        channels.onUncertain = { [unowned self] client, sent in receipts?.noteSent(sent, to: client) }
        channels.releaseKept = { [unowned answers] channel in answers.release(for: channel) }
        channels.onWritten = { [unowned self] in eventEnded(isMoreDue: false) }
        backlogProbe.onFinding = { [unowned self] client, hasRead in
            // The finding is about the client's socket on the bus, so it holds for replies and for other messages
            // there. If the client has a channel, its channel takes the finding for the other messages.
            if probedReplies.remove(client) != nil { report(.replyBacklogProbed(client, hasRead: hasRead)) }
            if !channels.backlogProbed(client, hasRead: hasRead) { report(.backlogProbed(client, hasRead: hasRead)) }
        }
        backlogProbe.mayBeInBus = { [unowned prober] client in prober.mayBeInBus(to: client) }
        // `window`: the window that the probe was for (``ClientProber/ProbedWindow``).
        prober.onAnswer = { [unowned self] client, window in
            switch window {
            case .replies: report(.repliesAnswered(client))
            case .client: if !channels.answered(client) { report(.answered(client)) }
            }
        }
        prober.onRefusal = { [unowned self] client, window in
            // The refusal matters only for numbered messages. Messages on the bus beside a channel have no sequence
            // number.
            guard window == .client, channels[client] == nil else { return }
            report(.probeRefused(client, isCounted: busReportsRefusals))
        }
    }

    /// The numbers of table entries per client, for tests.
    var kept: [(what: String, count: Int)] {
        [
            ("counts of overflows", overflows.count), ("timers of activity", inactivityTimers.count),
            ("timers of intervals", intervalTimers.count), ("probes", prober.keptCount),
            ("backlog probes of replies", probedReplies.count),
            ("barriers that were refused", refusedBarriers.count),
        ]
    }

    /// Releases the memory of entries of departed clients (E8).
    func releaseMemory() {
        // The headers are encoded again when they are needed.
        heads.removeAll()
        overflows.releaseMemory()
        probedReplies.releaseMemory()
        inactivityTimers.releaseMemory()
        intervalTimers.releaseMemory()
        receipts?.releaseMemory()
        store?.releaseMemory()
        prober.releaseMemory()
        backlogProbe.releaseMemory()
        answers.releaseMemory()
        channels.releaseMemory()
        activity?.releaseMemory()
    }

    /// Handles an error of the bus, which refused the message with this serial.
    func signalRefused(serial: UInt32) {
        guard serial >= Self.firstSignal else { return }
        busReportsRefusals = true
        if let (client, content) = sentSignals.take(serial) { report(.deliveryRefused(client, content)) }
    }

    /// Returns the content of the signals to each client that may still have been in flight when the bus closed the
    /// connection. `largest` is the size in bytes of the largest of them (``Delivery/carriedBytes``).
    func recentDeliveries() -> (counts: [ClientName: SentSignals.SignalContent], largest: Int) {
        sentSignals.recent(at: bus.context.now)
    }

    /// Calls `completion` when the bus has carried all messages that were sent before, and the service has received the
    /// bus's errors for them. It is called at once without a control connection, and never if the connection ends
    /// first.
    ///
    /// - Parameter isWanted: returns whether the completion is still needed, when a refused barrier is to be repeated.
    func whenCarried(while isWanted: @escaping () -> Bool, _ completion: @escaping () -> Void) {
        barrier.pass { [weak self] result in
            guard let self else { return }
            switch result {
            case .success:
                guard barrier.isAnsweredLater else { return completion() }
                // The barrier arrives on the control connection, the bus's errors on this one. A round trip on this one
                // comes behind the errors.
                bus.busID { result in
                    if case .failure(let error) = result, error.name == BusError.disconnectedName { return }
                    completion()
                }
            case .failure(let error):
                // The bus may be out of quota for a while.
                guard error.name != BusError.disconnectedName else { return }
                retryBarrierLater(RefusedBarrier(isWanted: isWanted, completion: completion))
            }
        }
    }

    /// Repeats a request with its barrier after a pause, together with other refused ones.
    private func retryBarrierLater(_ one: RefusedBarrier) {
        refusedBarriers.append(one)
        guard barrierRetryTimer == nil else { return }
        barrierRetryTimer = .once(milliseconds: Self.pauseForBus, on: bus.context) { [unowned self] in
            barrierRetryTimer = nil
            let waiting = refusedBarriers.filter { $0.isWanted() }
            refusedBarriers = []
            barrier.share { for one in waiting { whenCarried(while: one.isWanted, one.completion) } }
        }
    }

    /// A request of ``whenCarried(while:_:)`` whose barrier the bus refused.
    private struct RefusedBarrier {
        let isWanted: () -> Bool
        let completion: () -> Void
    }

    /// Calls `completion` when the bus has carried all sent messages and the store has recorded that, or when the
    /// connection ends. A refused barrier is repeated while receipts are missing. For the end of the process.
    ///
    /// - Parameter waitsForRefusals: whether to wait for the bus's errors for refused signals too. They arrive behind all
    ///   calls that the bus holds for the service.
    func settle(waitsForRefusals: Bool = true, _ completion: @escaping () -> Void) {
        // Repeats everything while messages without receipts are left.
        // `isKnown`: false if the bus did not answer, usually because the connection has ended.
        func carried(_ isKnown: Bool) {
            guard isKnown, receipts?.areComplete == false else { return completion() }
            settle(waitsForRefusals: waitsForRefusals, completion)
        }
        receipts?.sendBarrierNow()
        barrier.pass { [weak self] result in
            guard let self else { return completion() }
            if case .failure(let error) = result, error.name == BusError.disconnectedName { return completion() }
            // A round trip on the main connection comes behind the errors. It also replaces the barrier where there is
            // no control connection.
            guard waitsForRefusals || !barrier.isAnsweredLater else { return carried(true) }
            bus.busID { result in
                if case .success = result { carried(true) } else { carried(false) }
            }
        }
    }

    /// Writes the changes of one event to the store, and then carries out its effects in their order. Barriers that
    /// they request become one.
    func carryOut(_ effects: [Effect]) {
        guard !effects.isEmpty else { return }
        store?.keep(effects)
        let bus = bus
        let now = bus.context.now
        bus.batchSends {
            barrier.share {
                for effect in effects { carryOut(effect, at: now, over: bus) }
                // The receipt of the messages sent here shares their barrier. Without a control connection a barrier
                // completes at once, so the receipts wait for the end of the event.
                if barrier.isAnsweredLater { receipts?.eventEnded() }
            }
        }
    }

    /// Carries out an effect, on the bus unless the client's channel takes it.
    private func carryOut(_ effect: Effect, at now: SuspendingClock.Instant, over bus: any MessageBus) {
        if !channels.isEmpty, channels.carryOut(effect) { return }
        switch effect {
        case .deliver(let delivery): send(delivery, at: now, over: bus)
        case .deliverTogether(let client, let batch): send(batch, to: client)
        case .dropped(let client, let count, let observers, let reason, let sequence):
            reportLosses(client, count: count, lost: observers, because: reason, sequence: sequence)
        case .suspensionChanged(let client, let isSuspended, let cause):
            send(
                SuspensionChangedSignal(isSuspended: isSuspended, cause: cause.rawValue).message(to: client), to: client
            )
        #if CARILLON_PLANTED
            case .revoked where PlantedFault.strikes(.revocationUnreported): break
        #endif
        case .revoked(let client, let observers):
            Log.notice(
                "revoked \(observers.count) observers of \(client), which policy no longer allows",
                ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": DroppedSignal.notAllowed])
            send(
                DroppedSignal(count: 0, observers: observers, reason: DroppedSignal.notAllowed).message(to: client),
                to: client)
        case .export(let notification): sessions?.export(notification)
        case .exportEnded(let key): sessions?.exportEnded(key)
        case .interestChanged(let client): send(InterestChangedSignal().message(to: client), to: client)
        case .valuesRemoved(let client): send(ValuesRemovedSignal().message(to: client), to: client)
        case .probe(let client): prober.probe(client)
        case .backlogProbe(let client): backlogProbe.find(client)
        case .sendAnswer(let client): answers.sendKeptAnswer(for: client)
        case .probeReplies(let client): prober.probe(client, of: .replies)
        case .probeReplyBacklog(let client):
            probedReplies.insert(client)
            backlogProbe.find(client)
        case .sendReply(let client): answers.sendKeptReply(for: client)
        case .startInactivityTimer(let client, let epoch, let milliseconds):
            // The timer has the priority of other suspension changes, ahead of reading, because a flood of calls would
            // delay it (M6).
            inactivityTimers[client] = .once(
                milliseconds: UInt32(milliseconds), on: bus.context, priority: .of(.control)
            ) { [unowned self] in
                report(.inactivityTimerEnded(client, epoch: epoch))
            }
        case .startIntervalTimer(let client, let milliseconds):
            intervalTimers[client] = .once(milliseconds: milliseconds, on: bus.context) { [unowned self] in
                report(.intervalTimerEnded(client))
            }
        case .overflowed(let client, let reason): noteOverflow(of: client, because: reason)
        case .possibleLoss, .remember: break  // The store has written these before.
        case .watch(let client):
            activity?.clientAppeared(client)
            onWatched?(client)
            clients.watch(client) { [unowned self] in onGone(client) }
        case .watchDeparture(let connection):
            // The service itself is the poster of notifications from other sessions. It needs no watch on itself.
            guard connection != ownName() else { break }
            clients.watch(connection) { [unowned self] in onGone(connection) }
        case .forget(let client):
            backlogProbe.forget(client)
            probedReplies.remove(client)
            answers.forget(client)
            inactivityTimers[client] = nil
            intervalTimers[client] = nil
            activity?.forget(client)
            #if CARILLON_PLANTED
                let staying = PlantedFault.strikes(.overflowCountStays) ? overflows[client] : nil
            #else
                let staying: UInt64? = nil
            #endif
            overflows[client] = staying
            prober.forget(client)
            clients.forget(client)
            onForgotten?(client)
        }
    }

    /// Sends one notification on the bus.
    private func send(_ delivery: Delivery, at now: SuspendingClock.Instant, over bus: any MessageBus) {
        let serial = nextSignal()
        sentSignals.note(
            serial, to: delivery.client, size: delivery.carriedBytes, SentSignals.SignalContent(notifications: 1),
            at: now)
        NotificationSignal.send(
            delivery, userInfo: Self.userInfo(of: delivery.notification), behind: head(for: delivery),
            messageSerial: serial, over: bus)
        receipts?.noteSent(delivery.sequence, to: delivery.client, delivery.clientNumber)
    }

    private func head(for delivery: Delivery) -> EncodedHeader {
        if let head = heads[delivery.client, delivery.clientNumber] { return head }
        let head = NotificationSignal.head(for: delivery.client)
        heads[delivery.client, delivery.clientNumber] = head
        return head
    }

    /// Sends several notifications in one signal.
    private func send(_ batch: [Delivery], to client: ClientName) {
        let serial = nextSignal()
        sentSignals.note(
            serial, to: client, size: batch.reduce(0) { $0 + $1.carriedBytes },
            SentSignals.SignalContent(notifications: batch.count), at: bus.context.now)
        bus.send(
            NotificationsSignal.message(for: batch, to: client, messageSerial: serial) {
                Self.userInfo(of: $0)
            })
        let last = batch[batch.count - 1]
        receipts?.noteSent(last.sequence, to: client, last.clientNumber, notifications: UInt64(batch.count))
    }

    private static func userInfo(of notification: Notification) -> WireUserInfo {
        guard let userInfo = notification.userInfo as? WireUserInfo else {
            preconditionFailure("every post of this service carries a WireUserInfo")
        }
        return userInfo
    }

    /// Returns the message serial of the next signal; the last one is followed by the first.
    private func nextSignal() -> UInt32 {
        lastSignal = lastSignal == .max ? Self.firstSignal : lastSignal + 1
        return lastSignal
    }

    /// Ends an event: writes the frames of channels, and requests receipts from the bus.
    ///
    /// - Parameter isMoreDue: whether further messages are due, so that writing may be postponed to collect them.
    func eventEnded(isMoreDue: Bool) {
        if channels.needsEventEnd, channels.eventEnded(isMoreDue: isMoreDue, confirming: store) { store?.flush() }
        receipts?.eventEnded()
    }

    private func makeReceipts(for store: RecoveryStore) -> DeliveryReceipts {
        // The receipts do not outlive the store, because both are replaced together.
        DeliveryReceipts(barrier: barrier, context: bus.context) { [unowned store] carried in
            for row in carried { store.confirm(row.sent, of: row.client) }
            store.flush()
        }
    }

    /// Logs the beginning of a loss. It logs the 1st, 2nd, 4th, 8th … of a client, because a slow consumer loses
    /// notifications again and again.
    private func noteOverflow(of client: ClientName, because reason: DropReason) {
        guard let count = Log.throttle(&overflows[client, default: 0]) else { return }
        if reason == .busLimits || reason == .busDisconnected {
            return Log.warning(
                "the bus may not have delivered notifications to \(client) (\(reason.rawValue), \(count) times so far)",
                ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": reason.rawValue])
        }
        if reason == .channelEnded {
            return Log.info(
                "\(client) may not have read the last messages of its channel (\(count) times so far)",
                ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": reason.rawValue])
        }
        if reason == .overload {
            return Log.warning(
                "overload: some posts for \(client) arrived too fast, and were lost (\(count) times so far)",
                ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": reason.rawValue])
        }
        Log.warning(
            "slow consumer \(client): its oldest notifications are lost (\(reason.rawValue), \(count) times so far)",
            ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": reason.rawValue])
    }

    /// Reports losses to a client with the signal Dropped.
    private func reportLosses(
        _ client: ClientName, count: UInt64, lost observers: [ObserverID], because reason: DropReason, sequence: UInt64
    ) {
        Log.info(
            "reported \(count) lost notifications to \(client) (\(reason.rawValue))",
            ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": reason.rawValue])
        let message = DroppedSignal(count: count, observers: observers, reason: reason.rawValue).message(to: client)
        send(message, to: client, reporting: SentSignals.SignalContent(losses: count))
        receipts?.noteSent(sequence, to: client, notifications: 0, dropped: count)
    }

    /// Sends a control signal, and records it, so that its refusal by the bus is recognized.
    ///
    /// - Parameter content: the number of losses that the signal reports, if any.
    private func send(_ message: Message, to client: ClientName, reporting content: SentSignals.SignalContent = .init())
    {
        sentSignals.note(message.numbered(nextSignal), to: client, size: 0, content, at: bus.context.now)
        bus.send(message)
    }
}
