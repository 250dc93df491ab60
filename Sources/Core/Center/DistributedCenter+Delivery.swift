// SPDX-License-Identifier: Apache-2.0
/// The queue of each client: due and held notifications, its limits, and losses (S1 to S4, E1).
///
/// A due notification has a slot in the send schedule while its client reads, and leaves with it (`+Sending`).
/// Otherwise it waits in the queue. When a queue is full, it is sent to a client that reads; a client that does not
/// read loses the oldest notifications. Throttled notifications count in the queue too (`+Intervals`).
extension DistributedCenter {
    // MARK: Delivery to clients

    /// Makes a notification due in a lane (M6), behind all held notifications of the client: these become due first
    /// (S2, S3).
    ///
    /// - Returns: the lane in which it is scheduled; nil when the client does not read, and the notification waits in
    ///   the queue.
    func deliver(
        _ notification: Notification, to client: Client, observers: ObserverList, in lane: DeliveryLane,
        effects: inout [Effect]
    ) -> DeliveryLane? {
        flush(client, effects: &effects)
        let entry = DueQueue.Entry(notification: notification, observers: observers)
        changeQueue(of: client) { $0.append(entry, in: lane) }
        if client.isDueLogged {
            remember(.queuedDue(client.name, notification, observers: observers.ids, lane), effects: &effects)
        }
        let isScheduled = client.reads
        if isScheduled {
            schedule.append(client, in: lane, byteCount: entry.byteCount)
            if remembersScheduled { rememberDue(of: client, effects: &effects) }
        } else {
            rememberDue(of: client, effects: &effects)
            probeBacklogIfNeeded(for: client.peer, effects: &effects)
        }
        enforceLimits(of: client, effects: &effects)
        return isScheduled ? lane : nil
    }

    /// Holds a notification until the client is resumed (S1).
    ///
    /// - Parameter coalescing: the observers for which it replaces an earlier held notification of the same key; nil
    ///   for none.
    func hold(
        _ notification: Notification, for client: Client, observers: ObserverList, coalescing: ObserverList?,
        effects: inout [Effect]
    ) {
        let replaced = changeQueue(of: client) { queue in
            queue.hold(notification, observers: observers, coalescing: coalescing)
        }
        noteCoalesced(replaced, of: client)
        remember(
            .held(client.name, notification, observers: observers.ids, coalescing: coalescing?.ids ?? []),
            effects: &effects)
        enforceLimits(of: client, effects: &effects)
    }

    /// Counts notifications that a newer one replaced in the queue of a client.
    func noteCoalesced(_ count: Int, of client: Client) {
        counters.coalesced += UInt64(count)
        client.coalesced += UInt64(count)
    }

    /// Makes all held notifications due, in their order and before anything newer (S2), and sends them as far as the
    /// event's budget goes. Called when the client is resumed, and before an immediate delivery to a suspended client.
    func flush(_ client: Client, effects: inout [Effect]) {
        guard client.queue.hasHeld || client.replays.hasHeld else { return }
        // Values that a held replay is to deliver are older, so replays become ready first.
        client.replays.release()
        guard client.queue.hasHeld else {
            remember(.flushed(client.name), effects: &effects)
            return pump(client, effects: &effects)
        }
        // Due notifications now leave together with the held ones, which are in the log. The log records only that the
        // next one left, so it must have both.
        rememberDue(of: client, effects: &effects)
        client.isDueLogged = true
        if client.observersWithInterval > 0 { beginIntervalsOfHeld(of: client, effects: &effects) }
        changeQueue(of: client) { $0.flush() }
        remember(.flushed(client.name), effects: &effects)
        pump(client, effects: &effects)
    }

    /// Begins minimum intervals with held notifications that are due now: the newest ones, up to a maximum of
    /// notifications and of steps.
    ///
    /// 1. From the newest notification to older ones, it finds the observers with an interval. For each key and
    ///    observer only the newest notification counts.
    /// 2. It begins these intervals, from the oldest notification to newer ones.
    private func beginIntervalsOfHeld(of client: Client, effects: inout [Effect]) {
        let withInterval = Set(
            client.observers.lazy.filter { $0.value.registration.options.minimumInterval > 0 }.map(\.key))
        meter.count(client.observers.count)
        var (left, begun): (Int, [(Notification, ObserverList)]) = (Self.maxIntervalSteps, [])
        // For each notification key, the observers whose interval a newer notification begins. An older one changes
        // nothing.
        var haveBegun: [NotificationKey: Set<ObserverID>] = [:]
        // Returns those of the observers that are not in the set, and adds them.
        func begin(_ ids: [ObserverID], _ begun: inout Set<ObserverID>) -> [ObserverID] {
            ids.filter { begun.insert($0).inserted }
        }
        for entry in client.queue.newestHeld(Self.maxIntervalsBegun).reversed() {
            let (ids, notification) = (entry.observers.ids, entry.notification)
            // A few observers are compared with the whole list, because eight numbers fit into a cache line, which is
            // one step.
            let isFew = withInterval.count < Self.fewCompared
            let steps =
                (isFew ? withInterval.count * (1 + ids.count / 8) : ids.count)
                + (notification.name.utf8.count + notification.object.utf8.count) / Self.textBytesPerStep
            guard left > 0 else { break }
            left -= steps
            meter.count(steps)
            let all = isFew ? withInterval.filter(ids.contains).sorted() : ids.filter(withInterval.contains)
            guard !all.isEmpty else { continue }
            let observers = begin(all, &haveBegun[notification.key, default: []])
            guard !observers.isEmpty else { continue }
            // The beginning below visits all running intervals of the key.
            left -= client.queue.countOfMarks(of: notification.key)
            begun.append((notification, ObserverList(observers)))
        }
        for (notification, observers) in begun.reversed() {
            beginIntervals(of: client, for: observers, with: notification, effects: &effects)
        }
    }

    /// The maximum number of held notifications that begin intervals when they become due.
    private static let maxIntervalsBegun = 16_384
    /// The maximum number of steps to find the observers and to begin their intervals. A client can't remember many
    /// more intervals in any case.
    private static let maxIntervalSteps = 65_536
    /// The number of observers with intervals below which the list of a notification is searched for each of them. With
    /// more, each element of the list is looked up in the set of these observers.
    private static let fewCompared = 8
    /// The bytes of a name or object that are hashed in one step.
    private static let textBytesPerStep = 64

    /// Sends a client that reads all that goes before its scheduled notifications: control signals, reports of losses,
    /// replays, throttled notifications whose intervals have ended, and flushed notifications. Then it schedules the
    /// other due ones. Called whenever the client may have begun to read.
    func pump(_ client: Client, effects: inout [Effect]) {
        guard client.reads else { return probeBacklogIfNeeded(for: client.peer, effects: &effects) }
        announceSuspension(of: client, effects: &effects)
        announceRevocation(to: client, effects: &effects)
        announceLoss(to: client, effects: &effects)
        resendControl(to: client, effects: &effects)
        if spent.flushed < SpentInEvent.maxFlushed {
            spent.flushed += sendReplays(to: client, effects: &effects)
        } else {
            scheduleReplays(of: client)
        }
        sendThrottled(to: client, effects: &effects)
        guard client.queue.hasDue else { return }
        while client.reads, spent.flushed < SpentInEvent.maxFlushed {
            let count = sendFirst(of: .flushed, to: client, effects: &effects)
            guard count > 0 else { break }
            spent.flushed += count
        }
        giveSlots(to: client)
    }

    /// Sends all due and held notifications to a client that reads, without the send schedule. Called when its queue is
    /// nearly full.
    private func sendAll(to client: Client, effects: inout [Effect]) {
        flush(client, effects: &effects)
        pump(client, effects: &effects)
        while client.reads, client.replays.hasReady, spent.mayExpire { _ = sendReplays(to: client, effects: &effects) }
        for lane in DeliveryLane.allCases {
            while client.reads, sendFirst(of: lane, to: client, effects: &effects) > 0 {}
        }
        flushThrottled(to: client, isQueueFull: true, effects: &effects)
        giveSlots(to: client)
    }

    /// The approximate size of a signal without userInfo, in bytes.
    static let signalSize = 256

    // MARK: Limits (S4, E1)

    /// The maximum number of notifications that one new notification removes from a client's queue (E8). More are
    /// removed while the freed space may be less than the new notification takes. After a lowered limit the next
    /// notifications continue the removal.
    ///
    /// The same maximum holds for all clients together in one event, for losses because of the total. The driver
    /// continues with these after the event, with ``reclaimMemory(effects:)``.
    private static let maxLostPerNotification = SpentInEvent.maxLosses

    /// Brings a queue within its own limits, and all queues within their total. Called for each new notification.
    ///
    /// 1. A client that reads is sent its queue, once less than an eighth of a limit is free.
    /// 2. A client that still exceeds its limits loses its oldest notifications. The loss is reported.
    /// 3. If all queues exceed their total, scheduled notifications are sent. Then the largest queues lose their oldest
    ///    notifications, until the total is within its limit or this client's queue is empty.
    ///
    /// One event does a bounded part of this. ``isReclaimPending`` makes later events continue with the total.
    func enforceLimits(of client: Client, effects: inout [Effect]) {
        noteGrowth(of: client)
        let isOverTotal = isOverTotal
        guard isOverTotal || isNearLimits(client) else { return }
        // The queue is sent while an eighth of it is still free: later notifications need the space while the client
        // has not acknowledged these.
        if client.reads, isNearLimits(client) { sendAll(to: client, effects: &effects) }
        // If the client still reads, this event may remove no more expired notifications. The next events remove them,
        // and nothing else need be lost.
        guard !client.reads || spent.mayExpire else {
            isReclaimPending = isReclaimPending || isOverTotal
            return
        }
        // `atLeast` is enough space for the new notification. The number of removals is bounded once it is free.
        let (before, atLeast) = (totals.waitingMemory, 2 * Int(limits[.userInfoBytes]))
        var removalsLeft = Self.maxLostPerNotification
        func mayRemoveMore() -> Bool { removalsLeft > 0 || before - totals.waitingMemory < atLeast }
        while isOverLimits(client), mayRemoveMore() {
            removalsLeft -= 1
            if isOverBytes(client), forgetIdleIntervals(of: client) { continue }
            // If too many observers wait for intervals, the oldest throttled notification is lost.
            if !isOverBytes(client), client.queue.count <= limits[.queuedPerClient] {
                guard loseOldestThrottled(of: client, effects: &effects) else { break }
                continue
            }
            guard loseOldest(of: client, because: .queueFull, effects: &effects) else { break }
        }
        guard isOverTotal else { return }
        // Scheduled notifications can be sent, which frees space without a loss.
        processAllSlots(effects: &effects)
        // The loop ends when this client's queue is empty. The other queues have not grown: if they are over the total,
        // the limit was lowered.
        while !client.queue.isEmpty || client.queue.intervalBytes > 0, self.isOverTotal {
            guard spent.losses < SpentInEvent.maxLosses || spent.lostBytes < atLeast else {
                return isReclaimPending = true
            }
            let before = totals.waitingMemory
            spent.losses += 1
            guard loseFromLargest(effects: &effects) else { return }
            spent.lostBytes += before - totals.waitingMemory
        }
    }

    /// Frees space in the largest queue of the largest account: sends the queue to a client that reads, or loses its
    /// oldest notification. A client that does not read therefore costs no other account a notification, with any
    /// number of connections (E4).
    ///
    /// - Returns: whether space was freed. It is also false when the client still reads after its queue was sent: then
    ///   this event may remove no more expired notifications, and later events continue.
    func loseFromLargest(effects: inout [Effect]) -> Bool {
        guard let largest = accounts.first()?.clients.first().flatMap(client(of:)) else { return false }
        let before = totals.waitingMemory
        if largest.reads {
            sendAll(to: largest, effects: &effects)
            guard !largest.reads || spent.mayExpire else {
                isReclaimPending = true
                return false
            }
        }
        return totals.waitingMemory < before || forgetIdleIntervals(of: largest)
            || loseOldest(of: largest, because: .totalQueueFull, effects: &effects)
    }

    /// Whether the queues of all clients exceed their total limit.
    var isOverTotal: Bool { totals.waitingMemory > limits[.queuedBytes] }

    /// Whether the client's queue exceeds one of its own limits: notifications, observers that wait for intervals, or
    /// bytes.
    private func isOverLimits(_ client: Client) -> Bool {
        client.queue.count > limits[.queuedPerClient] || client.queue.countOfWaits > limits[.queuedPerClient]
            || isOverBytes(client)
    }

    /// Whether the client's queue and the state of its intervals exceed their size limit.
    private func isOverBytes(_ client: Client) -> Bool {
        client.queue.byteCount + client.queue.intervalBytes > limits[.queuedBytesPerClient]
    }

    /// Forgets the running intervals in which no notification waits, to free memory. Their observers may get the next
    /// notification early.
    ///
    /// - Returns: whether there were any.
    private func forgetIdleIntervals(of client: Client) -> Bool {
        changeQueue(of: client) { queue in queue.changeIntervals { $0.forgetIdle() } }
    }

    /// Whether less than an eighth is free of one of the limits of the client's queue.
    private func isNearLimits(_ client: Client) -> Bool {
        func isNear(_ value: Int, _ limit: UInt64) -> Bool { UInt64(value) > limit - limit / 8 }
        return isNear(client.queue.count, limits[.queuedPerClient])
            || isNear(client.queue.countOfWaits, limits[.queuedPerClient])
            || isNear(client.queue.byteCount + client.queue.intervalBytes, limits[.queuedBytesPerClient])
    }

    /// Loses the oldest notification of the client's queue. The client gets the report when it reads.
    private func loseOldest(of client: Client, because reason: DropReason, effects: inout [Effect]) -> Bool {
        let isFirst = client.unreportedLoss == nil
        guard dropOldest(of: client, because: reason) else { return false }
        client.counts.dropped += 1
        counters.dropped += 1
        remember(.lost(client.name, reason), effects: &effects)
        if !client.reads { probeBacklogIfNeeded(for: client.peer, effects: &effects) }
        if isFirst { effects.append(.overflowed(client.name, reason)) }
        return true
    }

    /// Loses the oldest throttled notification, and reports the loss.
    private func loseOldestThrottled(of client: Client, effects: inout [Effect]) -> Bool {
        guard
            let (notification, observers) = changeQueue(
                of: client, { queue in queue.changeIntervals { $0.popOldest() } })
        else { return false }
        remember(.throttleEnded(client.name, notification.key, observers: observers), effects: &effects)
        lose(1, of: client, observers: ObserverList(observers), because: .queueFull, effects: &effects)
        return true
    }

    /// Removes the oldest notification from the queue and adds it to the unreported loss. The caller counts it: a
    /// restored loss is counted in another way.
    func dropOldest(of client: Client, because reason: DropReason) -> Bool {
        guard let observers = changeQueue(of: client, { $0.dropOldest() }) else { return false }
        noteLoss(1, of: client, observers: observers, because: reason)
        return true
    }

    /// Adds notifications to the client's unreported loss.
    private func noteLoss(
        _ count: UInt64, of client: Client, observers: ObserverList, because reason: DropReason
    ) {
        client.lastLoss = reason
        var loss = client.unreportedLoss ?? Client.Loss(count: 0, observers: [], reason: reason)
        client.unreportedLoss = nil  // so that the array below is not shared
        loss.count += count
        let steps = loss.observers.formUnion(observers)
        meter.count(steps)
        if loss.observers.count > max(Self.maxRemovedObservers, 2 * client.observers.count) {
            // The client may register and remove observers forever, and never read.
            meter.count(loss.observers.count)
            loss.observers.keep { client.observers[$0] != nil }
        }
        client.unreportedLoss = loss
    }

    /// The number of observers up to which an unreported loss may name observers that were removed since.
    private static let maxRemovedObservers = 128

    /// Counts notifications as lost that were never in the queue, and reports the loss. A client that reads gets it at
    /// once.
    func lose(
        _ count: UInt64, of client: Client, observers: ObserverList, because reason: DropReason,
        effects: inout [Effect]
    ) {
        countLost(count, of: client, observers: observers, because: reason, effects: &effects)
        reportLoss(of: client, effects: &effects)
    }

    /// Counts a loss without the report of it: ``reportLoss(of:effects:)`` must follow in the same event.
    func countLost(
        _ count: UInt64, of client: Client, observers: ObserverList, because reason: DropReason,
        effects: inout [Effect]
    ) {
        let isFirst = client.unreportedLoss == nil
        noteLoss(count, of: client, observers: observers, because: reason)
        client.counts.dropped += count
        counters.dropped += count
        if isFirst { effects.append(.overflowed(client.name, reason)) }
    }

    /// Logs the unreported loss of a client. Then it reports the loss to a client that reads.
    func reportLoss(of client: Client, effects: inout [Effect]) {
        if let loss = client.unreportedLoss {
            remember(
                .unreportedLoss(client.name, count: loss.count, observers: loss.observers, loss.reason),
                effects: &effects)
        }
        if client.reads {
            announceLoss(to: client, effects: &effects)
        } else {
            probeBacklogIfNeeded(for: client.peer, effects: &effects)
        }
    }

    /// Sends the client the reports of its losses. The lost notifications take the sequence numbers before the next
    /// delivery, so the client sees no other hole.
    func announceLoss(to client: Client, effects: inout [Effect]) {
        announcePossibleLoss(to: client, effects: &effects)
        guard let loss = client.unreportedLoss else { return }
        client.unreportedLoss = nil
        client.counts.sequence += loss.count
        // Code under CARILLON_PLANTED injects a fault, in builds that test whether the simulation finds it (E7).
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.unreportedHole) { return }
        #endif
        meter.countCopy(of: 8 * loss.observers.count)
        effects.append(
            .dropped(
                client.name, count: loss.count, observers: loss.observers.ids, reason: loss.reason,
                sequence: client.counts.sequence))
        countSent(
            Self.signalSize + 8 * loss.observers.count, content: FlowWindow.NumberedContent(losses: loss.count),
            to: client.peer,
            effects: &effects)
        // Logged after the report: a crash between the two repeats the report instead of losing it.
        remember(.lossAnnounced(client.name), effects: &effects)
    }

    // MARK: Accounting

    /// Changes the queue of a client, and charges or credits the difference of its size. Every change of a queue goes
    /// through here, so that the totals stay right.
    @discardableResult
    func changeQueue<Result>(of client: Client, _ change: (inout DeliveryQueue) -> Result) -> Result {
        let (count, byteCount, intervalBytes) = (
            client.queue.count, client.queue.byteCount, client.queue.intervalBytes
        )
        defer {
            let queued = Int(counters.queued) + client.queue.count - count
            charge(client.peer, .queuedBytes, client.queue.byteCount - byteCount)
            charge(client.peer, .intervalBytes, client.queue.intervalBytes - intervalBytes)
            invariant(
                queued >= 0 && (queued == 0) == (totals[.queuedBytes] == 0), "E1: the totals of queues are their sums")
            counters.queued = UInt64(queued)
        }
        return change(&client.queue)
    }
}
