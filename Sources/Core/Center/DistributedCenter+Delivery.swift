// SPDX-License-Identifier: Apache-2.0
/// Queues of clients: scheduled and queued notifications, and losses (S2 to S4).
extension DistributedCenter {
    // MARK: Delivery to clients

    /// Schedules a notification in its lane (M6), after all held notifications of the client (S2, S3).
    ///
    /// - Returns: the lane in which it is scheduled; nil when the client does not read and the notification is queued.
    func deliver(
        _ notification: Notification, to client: Client, observers: ObserverList, in lane: DeliveryLane,
        effects: inout [Effect]
    ) -> DeliveryLane? {
        flush(client, effects: &effects)
        let entry = DueQueue.Entry(notification: notification, observers: observers)
        changeQueue(of: client) { $0.append(entry, in: lane) }
        if client.remembersDue {
            remember(.queuedDue(client.name, notification, observers: observers.ids, lane), effects: &effects)
        }
        let isStaged = client.reads
        if isStaged {
            schedule.append(client, in: lane, byteCount: entry.byteCount)
            if remembersStaged { rememberDue(of: client, effects: &effects) }
        } else {
            rememberDue(of: client, effects: &effects)
            probeBacklogIfNeeded(for: client.peer, effects: &effects)
        }
        enforceLimits(of: client, effects: &effects)
        return isStaged ? lane : nil
    }

    /// Holds a notification until the client is resumed (S1).
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

    func noteCoalesced(_ count: Int, of client: Client) {
        counters.coalesced += UInt64(count)
        client.coalesced += UInt64(count)
    }

    /// Delivers all held notifications at once and in their order, before anything newer (S2).
    func flush(_ client: Client, effects: inout [Effect]) {
        guard client.queue.hasHeld || client.replays.hasHeld else { return }
        // Pending replays go before all held notifications.
        client.replays.release()
        guard client.queue.hasHeld else {
            remember(.flushed(client.name), effects: &effects)
            return pump(client, effects: &effects)
        }
        // Due notifications leave together with the held ones, so from here on both are in the log.
        rememberDue(of: client, effects: &effects)
        client.remembersDue = true
        if client.observersWithInterval > 0 { beginIntervalsOfHeld(of: client, effects: &effects) }
        changeQueue(of: client) { $0.flush() }
        remember(.flushed(client.name), effects: &effects)
        pump(client, effects: &effects)
    }

    /// Begins the intervals of held notifications that are due now, the newest first up to a maximum.
    private func beginIntervalsOfHeld(of client: Client, effects: inout [Effect]) {
        let withInterval = Set(
            client.observers.lazy.filter { $0.value.registration.options.minimumInterval > 0 }.map(\.key))
        meter.count(client.observers.count)
        var (left, begun): (Int, [(Notification, ObserverList)]) = (Self.maxMarksBegun, [])
        // For each notification key the observers whose intervals begin with a newer notification: once is enough.
        var haveBegun: [NotificationKey: Set<ObserverID>] = [:]
        func begin(_ ids: [ObserverID], _ begun: inout Set<ObserverID>) -> [ObserverID] {
            ids.filter { begun.insert($0).inserted }
        }
        for entry in client.queue.newestHeld(Self.maxIntervalsBegun).reversed() {
            let (ids, notification) = (entry.observers.ids, entry.notification)
            // A few observers are compared with the whole list, of which eight fit into a cache line.
            let isFew = withInterval.count < Self.fewCompared
            let steps =
                (isFew ? withInterval.count * (1 + ids.count / 8) : ids.count)
                + (notification.name.utf8.count + notification.object.utf8.count) / Self.textBytesPerStep
            guard left > 0 else { break }
            left -= steps
            meter.count(steps)
            let all = isFew ? withInterval.filter(ids.contains).sorted() : ids.filter(withInterval.contains)
            guard !all.isEmpty else { continue }
            let observers = begin(all, &haveBegun[notification.kind, default: []])
            guard !observers.isEmpty else { continue }
            left -= client.queue.countOfMarks(of: notification.kind)
            begun.append((notification, ObserverList(observers)))
        }
        for (notification, observers) in begun.reversed() {
            beginIntervals(of: client, for: observers, with: notification, effects: &effects)
        }
    }

    /// The maximum number of held notifications whose intervals begin when they are due: the newest.
    private static let maxIntervalsBegun = 16_384
    /// The maximum number of steps to find the observers with intervals. The memory that a client has for its intervals
    /// ends at about this size.
    private static let maxMarksBegun = 65_536
    private static let fewCompared = 8
    /// The bytes of a text that are hashed in one step.
    private static let textBytesPerStep = 64

    /// Sends a client that reads its control signals, losses, replays and flushed notifications, and schedules the
    /// rest.
    func pump(_ client: Client, effects: inout [Effect]) {
        guard client.reads else { return probeBacklogIfNeeded(for: client.peer, effects: &effects) }
        tellSuspension(of: client, effects: &effects)
        tellRevocation(to: client, effects: &effects)
        announceLoss(to: client, effects: &effects)
        resendControl(to: client, effects: &effects)
        if spent.flushed < SpentInEvent.maxFlushed {
            spent.flushed += sendReplays(to: client, effects: &effects)
        } else {
            keepTurn(of: client)
        }
        sendDelayed(to: client, effects: &effects)
        guard client.queue.hasDue else { return }
        while client.reads, spent.flushed < SpentInEvent.maxFlushed {
            let count = sendFirst(of: .flushed, to: client, effects: &effects)
            guard count > 0 else { break }
            spent.flushed += count
        }
        giveSlots(to: client)
    }

    /// Sends all due and held notifications to a client that reads, without the schedule, as its queue is nearly full.
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

    /// The maximum number of notifications that a new one removes from a client's queue (E8). It is exceeded while less
    /// space was freed than the new notification may have taken. After a lowered limit, the next notifications continue
    /// the removal.
    ///
    /// The same maximum holds for all clients together in one event. The rest is removed after the event
    /// (``giveWay(effects:)``).
    private static let maxLostForRoom = SpentInEvent.maxLosses

    /// Brings a queue within its limits. A client that reads is sent its queue; a client that does not read loses the
    /// oldest notifications, and the loss is reported.
    func enforceLimits(of client: Client, effects: inout [Effect]) {
        noteGrowth(of: client)
        let isOverTotal = isOverTotal
        guard isOverTotal || isNearLimits(client) else { return }
        // The queue is sent while an eighth of it is free, as later notifications wait there for the client's
        // acknowledgment.
        if client.reads, isNearLimits(client) { sendAll(to: client, effects: &effects) }
        // Expired notifications are still in the queue. They are removed with the next events, and nothing is lost for
        // them.
        guard !client.reads || spent.mayExpire else {
            owesRoom = owesRoom || isOverTotal
            return
        }
        let (before, atLeast) = (totals.waitingMemory, 2 * Int(limits[.userInfoBytes]))
        var rest = Self.maxLostForRoom
        func hasTimeLeft() -> Bool { rest > 0 || before - totals.waitingMemory < atLeast }
        while isOverLimits(client), hasTimeLeft() {
            rest -= 1
            if isOverBytes(client), forgetIdleIntervals(of: client) { continue }
            // When too many observers wait for intervals, the oldest throttled notification is lost.
            if !isOverBytes(client), client.queue.count <= limits[.queuedPerClient] {
                guard loseOldestDelayed(of: client, effects: &effects) else { break }
                continue
            }
            guard loseOldest(of: client, because: .queueFull, effects: &effects) else { break }
        }
        guard isOverTotal else { return }
        // Scheduled notifications can be sent without a loss.
        takeAllTurns(effects: &effects)
        // With an empty queue of this client the loop ends. The other queues have not grown, and were within a limit
        // that was lowered since.
        while !client.queue.isEmpty || client.queue.intervalBytes > 0, self.isOverTotal {
            guard spent.losses < SpentInEvent.maxLosses || spent.lostBytes < atLeast else { return owesRoom = true }
            let before = totals.waitingMemory
            spent.losses += 1
            guard loseFromLargest(effects: &effects) else { return }
            spent.lostBytes += before - totals.waitingMemory
        }
    }

    /// Frees space in the largest queue of the largest account: sends it to a client that reads, or loses the oldest
    /// notification. A client that does not read therefore never costs another account its notifications, with any
    /// number of connections (E4).
    ///
    /// - Returns: whether space was freed.
    func loseFromLargest(effects: inout [Effect]) -> Bool {
        guard let largest = accounts.first()?.clients.first().flatMap(client(of:)) else { return false }
        let before = totals.waitingMemory
        if largest.reads {
            sendAll(to: largest, effects: &effects)
            guard !largest.reads || spent.mayExpire else {
                owesRoom = true
                return false
            }
        }
        return totals.waitingMemory < before || forgetIdleIntervals(of: largest)
            || loseOldest(of: largest, because: .totalQueueFull, effects: &effects)
    }

    var isOverTotal: Bool { totals.waitingMemory > limits[.queuedBytes] }

    private func isOverLimits(_ client: Client) -> Bool {
        client.queue.count > limits[.queuedPerClient] || client.queue.countOfWaits > limits[.queuedPerClient]
            || isOverBytes(client)
    }

    private func isOverBytes(_ client: Client) -> Bool {
        client.queue.byteCount + client.queue.intervalBytes > limits[.queuedBytesPerClient]
    }

    /// Forgets the intervals without a throttled notification, which no observer waits for.
    ///
    /// - Returns: whether there were any.
    private func forgetIdleIntervals(of client: Client) -> Bool {
        changeQueue(of: client) { queue in queue.changeIntervals { $0.forgetIdle() } }
    }

    private func isNearLimits(_ client: Client) -> Bool {
        func isNear(_ value: Int, _ limit: UInt64) -> Bool { UInt64(value) > limit - limit / 8 }
        return isNear(client.queue.count, limits[.queuedPerClient])
            || isNear(client.queue.countOfWaits, limits[.queuedPerClient])
            || isNear(client.queue.byteCount + client.queue.intervalBytes, limits[.queuedBytesPerClient])
    }

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

    /// Loses the oldest throttled notification.
    private func loseOldestDelayed(of client: Client, effects: inout [Effect]) -> Bool {
        guard
            let (notification, observers) = changeQueue(
                of: client, { queue in queue.changeIntervals { $0.popOldest() } })
        else { return false }
        remember(.throttleEnded(client.name, notification.kind, observers: observers), effects: &effects)
        lose(1, of: client, observers: ObserverList(observers), because: .queueFull, effects: &effects)
        return true
    }

    /// Removes the oldest notification from the queue and notes the loss for the client's report, without counting it.
    func dropOldest(of client: Client, because reason: DropReason) -> Bool {
        guard let observers = changeQueue(of: client, { $0.dropOldest() }) else { return false }
        noteLoss(1, of: client, observers: observers, because: reason)
        return true
    }

    private func noteLoss(
        _ count: UInt64, of client: Client, observers: ObserverList, because reason: DropReason
    ) {
        client.lastLoss = reason
        var loss = client.unreportedLoss ?? Client.Loss(count: 0, observers: [], reason: reason)
        client.unreportedLoss = nil  // so that the array below is not shared
        loss.count += count
        let steps = loss.observers.formUnion(observers)
        meter.count(steps)
        if loss.observers.count > max(Self.manyOfLoss, 2 * client.observers.count) {
            // The client may register and remove observers forever, and never read.
            meter.count(loss.observers.count)
            loss.observers.keep { client.observers[$0] != nil }
        }
        client.unreportedLoss = loss
    }

    /// The number of observers up to which a loss keeps removed observers.
    private static let manyOfLoss = 128

    /// Counts notifications as lost that were never in the queue, and reports the loss at once to a client that reads.
    func lose(
        _ count: UInt64, of client: Client, observers: ObserverList, because reason: DropReason,
        effects: inout [Effect]
    ) {
        countLost(count, of: client, observers: observers, because: reason, effects: &effects)
        tellLoss(of: client, effects: &effects)
    }

    /// Counts a loss without a report: ``tellLoss(of:effects:)`` must follow.
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

    func tellLoss(of client: Client, effects: inout [Effect]) {
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

    /// Reports the loss of the oldest notifications. Their place in the sequence is before the next delivery.
    func announceLoss(to client: Client, effects: inout [Effect]) {
        announcePossibleLoss(to: client, effects: &effects)
        guard let loss = client.unreportedLoss else { return }
        client.unreportedLoss = nil
        client.counts.sequence += loss.count
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.holeWithoutWord) { return }
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
        // Logged after the report: a crash in between repeats the report and does not lose it.
        remember(.lossAnnounced(client.name), effects: &effects)
    }

    // MARK: Accounting

    /// Changes a queue and charges the difference. Every change goes through here, so that the totals stay right.
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
