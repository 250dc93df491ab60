// SPDX-License-Identifier: Apache-2.0
/// Sending by the send schedule (M6): the order in which due notifications leave.
///
/// The schedule has a queue of slots for each lane. A slot names a client, and lets it send the first notification of
/// its queue in that lane, or a batch. The driver asks which lanes are ready, and processes slots at the main-loop
/// priority of each lane. A notification gets its sequence number when it is sent, because a client receives in that
/// order.
extension DistributedCenter {
    /// Whether `lane` has a slot to process.
    public func isReady(_ lane: DeliveryLane) -> Bool {
        !schedule.isEmpty(lane)
    }

    /// Whether any lane has a slot to process.
    public var isAnythingReady: Bool { schedule.count > 0 }

    /// Whether all slots before a watermark have been processed. Then the post that got the watermark may be answered.
    public func hasPassed(_ mark: Watermark) -> Bool {
        schedule.hasPassed(mark)
    }

    /// Processes the slots of `lane` and of more urgent lanes, the most urgent first.
    ///
    /// - Parameter limit: the maximum number of slots. A slot that sends a batch counts each notification. It may
    ///   exceed the limit by at most one ``Batch``.
    public func sendReady(upTo lane: DeliveryLane, limit: Int, effects: inout [Effect]) {
        defer { eventEnded() }
        var left = limit
        while left > 0, let first = schedule.first, first <= lane {
            left -= max(1, takeSlot(in: first, effects: &effects))
        }
    }

    /// Processes all slots, the most urgent lane first. Afterwards all notifications of earlier posts have been sent to
    /// the clients that read.
    ///
    /// - Parameter isLast: whether no other event follows. Then the removal of expired notifications has no bound.
    public func sendAllReady(isLast: Bool = false, effects: inout [Effect]) {
        defer { eventEnded() }
        processAllSlots(effects: &effects)
        while isLast, !waitingForNextEvent.isEmpty || isAnythingReady {
            spent.expired = 0
            rescheduleWaiting()
            processAllSlots(effects: &effects)
        }
    }

    /// Processes all slots of the send schedule. Replays of values may be long; they get new slots afterwards, which
    /// are not processed here.
    func processAllSlots(effects: inout [Effect]) {
        isDraining = true
        while let lane = schedule.first { takeSlot(in: lane, effects: &effects) }
        isDraining = false
        for client in replaysWhileDraining { scheduleReplays(of: client) }
        replaysWhileDraining = []
    }

    /// Gives a client that reads one slot in each lane in which it has due notifications and no slot.
    func giveSlots(to client: Client) {
        guard client.reads else { return }
        for lane in DeliveryLane.allCases where !client.queue.isEmpty(lane) && client.queue[scheduledIn: lane] == 0 {
            schedule.append(client, in: lane, byteCount: 0)
        }
    }

    /// Gives a client that reads a slot for its ready replays of values, if it has none. Replays use the `immediate`
    /// lane.
    func scheduleReplays(of client: Client) {
        guard client.reads, client.replays.hasReady, client.queue[scheduledIn: .immediate] == 0 else { return }
        if isDraining {
            replaysWhileDraining.append(client)
        } else if !spent.mayExpire {
            waitingForNextEvent.append(client)
        } else {
            schedule.append(client, in: .immediate, byteCount: 0)
        }
    }

    /// Gives slots to the clients whose work the budget of the last event did not allow.
    func rescheduleWaiting() {
        let waiting = waitingForNextEvent
        waitingForNextEvent = []
        for client in waiting {
            if client.replays.hasReady { scheduleReplays(of: client) } else { giveSlots(to: client) }
        }
    }

    /// Processes slots until the schedule is within its maximum size, so that a burst of posts does not pile up in it.
    func sendOverfull(effects: inout [Effect]) {
        while schedule.isOverfull, let lane = schedule.first { takeSlot(in: lane, effects: &effects) }
    }

    /// Processes the first slot of a lane. If its client does not read, it sends nothing. If more is due to the client
    /// in this lane, the client gets a new slot behind all others, so that a client with a backlog delays nobody.
    ///
    /// - Returns: the number of sent notifications.
    @discardableResult
    private func takeSlot(in lane: DeliveryLane, effects: inout [Effect]) -> Int {
        meter.count()
        guard let client = schedule.next(in: lane), client.reads else { return 0 }
        let hadReplays = client.replays.hasReady
        let count = sendFirst(of: lane, to: client, effects: &effects)
        // The slot is processed, and the poster that waits for it may get its answer. The notification itself may still
        // wait, for a replay or for the next event, so it is logged.
        if client.replays.hasReady || !spent.mayExpire { rememberDue(of: client, effects: &effects) }
        if client.replays.hasReady {
            scheduleReplays(of: client)
            return count
        }
        guard count > 0 || spent.mayExpire else {
            waitingForNextEvent.append(client)
            return 0
        }
        // Slots of later notifications were used by the replays, so these notifications need new ones.
        if hadReplays { giveSlots(to: client) }
        if client.reads, client.queue[scheduledIn: lane] == 0, !client.queue.isEmpty(lane) {
            schedule.append(client, in: lane, byteCount: 0)
        }
        return count
    }

    /// Sends the first notification of a lane to a client that reads, or a batch to a client with the option `batches`.
    /// The report of losses, replays and flushed notifications go first.
    ///
    /// - Returns: the number of sent notifications. 0 means that nothing is due, that the client is blocked, or that
    ///   this event may remove no more expired notifications (``SpentInEvent/mayExpire``).
    @discardableResult
    func sendFirst(of lane: DeliveryLane, to client: Client, effects: inout [Effect]) -> Int {
        // S4: a loss is announced before anything newer is delivered.
        if client.unreportedLoss != nil { announceLoss(to: client, effects: &effects) }
        let replayed = sendReplays(to: client, effects: &effects)
        guard client.reads, !client.replays.hasReady else { return replayed }
        // S2: flushed notifications go before anything newer, in any lane.
        let lane = client.queue.isEmpty(.flushed) ? lane : .flushed
        guard dropExpired(in: lane, of: client, effects: &effects) else { return replayed }
        guard let first = client.queue.first(in: lane) else { return replayed }
        guard fitsInFlightQuota(for: client.peer, first.byteCount) else {
            blockOnQuota(client.peer, effects: &effects)
            return replayed
        }
        invariant(client.presence != .gone, "D8: a client that left the bus gets nothing")
        let isCarried = first.carriedBytes < maxBytes
        if client.options.batches, isCarried {
            return replayed + sendBatch(of: lane, to: client, effects: &effects)
        }
        guard let entry = changeQueue(of: client, { $0.popDue(lane) }) else { return replayed }
        if isCarried {
            effects.append(.deliver(makeDelivery(of: entry, to: client)))
        } else {
            loseToBus(client, effects: &effects)
        }
        noteSent(1, of: lane, to: client, effects: &effects)
        countSent(
            isCarried ? entry.byteCount : Self.signalSize,
            content: isCarried ? FlowWindow.NumberedContent(notifications: 1) : FlowWindow.NumberedContent(losses: 1),
            to: client.peer,
            effects: &effects)
        return replayed + 1
    }

    /// Reports a notification as lost because it is too large for the bus. The report takes its sequence number, in its
    /// place in the stream.
    func loseToBus(_ client: Client, effects: inout [Effect]) {
        client.counts.sequence += 1
        client.counts.dropped += 1
        client.lastLoss = .busLimits
        counters.dropped += 1
        effects += [
            .overflowed(client.name, .busLimits),
            .dropped(client.name, count: 1, observers: [], reason: .busLimits, sequence: client.counts.sequence),
        ]
    }

    /// Removes expired notifications at the head of a lane. They get no sequence number and count as no loss.
    ///
    /// - Returns: whether the head of the lane is not expired; false when one event may remove no more.
    private func dropExpired(in lane: DeliveryLane, of client: Client, effects: inout [Effect]) -> Bool {
        while let expiry = client.queue.first(in: lane)?.notification.expiry, expiry <= clock.uptime() {
            guard spent.mayExpire else { return false }
            spent.expired += 1
            meter.count()
            changeQueue(of: client) { _ = $0.popDue(lane) }
            counters.expired += 1
            noteSent(1, of: lane, to: client, effects: &effects)
        }
        return true
    }

    /// Sends the due notifications of a lane in one message: as many as the batch, the window, the bus and the
    /// in-flight quota allow.
    private func sendBatch(of lane: DeliveryLane, to client: Client, effects: inout [Effect]) -> Int {
        var batch = Batch(maxBytes: client.peer.flow.bytesLeft)
        // Whether the next notification would not fit into the window. The message is limited to it, so that no more
        // bytes are unacknowledged than with single notifications.
        var isFull = false
        while let next = client.queue.first(in: lane) {
            isFull = !batch.fitsWindow(for: next.byteCount)
            // The first notification was checked before. An expired one behind it is left to the next slot.
            if !batch.deliveries.isEmpty, let expiry = next.notification.expiry, expiry <= clock.uptime() { break }
            guard next.carriedBytes < maxBytes, batch.takes(next, maxCarried: maxBytes),
                fitsInFlightQuota(for: client.peer, next.byteCount, behind: batch.byteCount),
                let entry = changeQueue(of: client, { $0.popDue(lane) })
            else { break }
            batch.append(makeDelivery(of: entry, to: client), entry)
        }
        let count = batch.deliveries.count
        // The batch used one slot. The slots of its other notifications send nothing.
        schedule.tombstone(client, in: lane)
        effects.append(.deliverTogether(client.name, batch.deliveries))
        noteSent(count, of: lane, to: client, effects: &effects)
        countSent(
            batch.byteCount, content: FlowWindow.NumberedContent(notifications: count), fills: isFull, to: client.peer,
            effects: &effects)
        return count
    }

    /// The maximum number and size of the notifications in one message, for code that combines several messages again
    /// (F1), such as the channels of the service.
    public static var maxTogether: (count: Int, byteCount: Int) { (Batch.maxCount, FlowWindow.bytes) }

    /// Makes the delivery of a queue entry: assigns the client's next sequence number, and counts it as delivered.
    func makeDelivery(
        of entry: DueQueue.Entry, to client: Client, isRetained: Bool = false, isDelayed: Bool = false
    ) -> Delivery {
        meter.count()
        meter.countCopy(of: entry.carriedBytes)
        client.counts.sequence += 1
        client.counts.delivered += 1
        counters.delivered += 1
        return Delivery(
            client: client.name, clientNumber: client.number, notification: entry.notification,
            details: client.options.details,
            expiryTime: client.options.details.contains(.expiry) ? expiryTime(of: entry.notification) : nil,
            isRetained: isRetained, isDelayed: isDelayed, observers: entry.observers,
            sequence: client.counts.sequence)
    }

    /// Returns the expiry as a time of the clock, in microseconds since 1970. The remaining time is measured by the
    /// uptime, as the clock may have been set since the post.
    func expiryTime(of notification: Notification) -> Int64? {
        notification.expiry.map { clock.time() + ($0 - clock.uptime()) }
    }

    /// Logs that notifications left a lane, if they are in the log. Call it after they were sent: a crash between the
    /// two sends them again, with the same serials, instead of losing them.
    private func noteSent(_ count: Int, of lane: DeliveryLane, to client: Client, effects: inout [Effect]) {
        guard client.isDueLogged else { return }
        // Code under CARILLON_PLANTED injects a fault, in builds that test whether the simulation finds it (E7).
        #if CARILLON_PLANTED
            let isLogged = !PlantedFault.strikes(.sentStaysLogged)
        #else
            let isLogged = true
        #endif
        if isLogged, remembersChanges {
            meter.count(count)
            for _ in 0..<count { remember(.popped(client.name, lane), effects: &effects) }
        }
        client.isDueLogged = client.queue.hasDue
    }

    /// Logs the due notifications of a client from now on, because they may wait for long. Notifications that are about
    /// to be sent are not logged, to save the writes.
    func rememberDue(of client: Client, effects: inout [Effect]) {
        guard !client.isDueLogged, client.queue.hasDue else { return }
        client.isDueLogged = true
        guard remembersChanges else { return }
        client.queue.forEachDue { entry, lane in
            effects.append(
                .remember(.queuedDue(client.name, entry.notification, observers: entry.observers.ids, lane)))
        }
    }
}
