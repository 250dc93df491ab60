// SPDX-License-Identifier: Apache-2.0
/// The turns in which what is due leaves (M6): the driver asks what is ready and has it sent, at the priority of its
/// lane. Sequence numbers are given here, in the order in which the client receives.
extension DistributedCenter {
    /// Whether something is ready to be sent in `lane`.
    public func isReady(_ lane: DeliveryLane) -> Bool {
        !turns.isEmpty(lane)
    }

    /// Whether something is ready to be sent in any lane.
    public var isAnythingReady: Bool { turns.count > 0 }

    /// Whether all that was in the line before `mark` has had its turn.
    public func hasPassed(_ mark: Watermark) -> Bool {
        turns.hasPassed(mark)
    }

    /// Sends what is ready in `lane` and in more urgent ones, the most urgent first.
    ///
    /// - Parameter limit: of the turns that are taken. In one that goes together it counts each notification; what it
    ///   goes beyond that is at most a ``Batch``.
    public func sendReady(upTo lane: DeliveryLane, limit: Int, effects: inout [Effect]) {
        defer { eventEnded() }
        var left = limit
        while left > 0, let first = turns.first, first <= lane {
            left -= max(1, takeTurn(in: first, effects: &effects))
        }
    }

    /// Sends all that is ready, the most urgent first: a barrier.
    ///
    /// - Parameter isLast: whether there is no other event: nobody waits for it, however much is in the way whose time is over.
    public func sendAllReady(isLast: Bool = false, effects: inout [Effect]) {
        defer { eventEnded() }
        takeAllTurns(effects: &effects)
        while isLast, !waitingForNextEvent.isEmpty || isAnythingReady {
            spent.expired = 0
            giveTurnsToWaiting()
            takeAllTurns(effects: &effects)
        }
    }

    /// All but those of who is owed values, which may be many.
    func takeAllTurns(effects: inout [Effect]) {
        isDraining = true
        while let lane = turns.first { takeTurn(in: lane, effects: &effects) }
        isDraining = false
        for client in owedWhileDraining { keepTurn(of: client) }
        owedWhileDraining = []
    }

    /// Gives a client that reads a turn in each lane in which something is due to it and it has none.
    func giveTurns(to client: Client) {
        guard client.reads else { return }
        for lane in DeliveryLane.allCases where !client.queue.isEmpty(lane) && client.queue[turnsOf: lane] == 0 {
            turns.append(client, in: lane, byteCount: 0)
        }
    }

    /// Sees to it that a client that reads is sent the rest of what it is owed.
    func keepTurn(of client: Client) {
        guard client.reads, client.owed.hasReady, client.queue[turnsOf: .immediate] == 0 else { return }
        if isDraining {
            owedWhileDraining.append(client)
        } else if !spent.mayExpire {
            waitingForNextEvent.append(client)
        } else {
            turns.append(client, in: .immediate, byteCount: 0)
        }
    }

    /// An event has ended: those that could not go on in it may in the next.
    func giveTurnsToWaiting() {
        let waiting = waitingForNextEvent
        waitingForNextEvent = []
        for client in waiting {
            if client.owed.hasReady { keepTurn(of: client) } else { giveTurns(to: client) }
        }
    }

    /// Pushes out what is more than may be staged.
    func sendOverfull(effects: inout [Effect]) {
        while turns.isOverfull, let lane = turns.first { takeTurn(in: lane, effects: &effects) }
    }

    /// - Returns: how many notifications that sent.
    @discardableResult
    private func takeTurn(in lane: DeliveryLane, effects: inout [Effect]) -> Int {
        meter.count()
        guard let client = turns.next(in: lane), client.reads else { return 0 }
        let wasOwed = client.owed.hasReady
        let count = sendFirst(of: lane, to: client, effects: &effects)
        // The turn is over, and the poster may be told, though what it was for waits until the values have gone, or until the
        // next event.
        if client.owed.hasReady || !spent.mayExpire { rememberDue(of: client, effects: &effects) }
        if client.owed.hasReady {
            keepTurn(of: client)
            return count
        }
        guard count > 0 || spent.mayExpire else {
            waitingForNextEvent.append(client)
            return 0
        }
        if wasOwed { giveTurns(to: client) }
        if client.reads, client.queue[turnsOf: lane] == 0, !client.queue.isEmpty(lane) {
            turns.append(client, in: lane, byteCount: 0)
        }
        return count
    }

    /// Sends what is first in a lane of a client that reads; to one that wants batches, all that may go with it.
    ///
    /// - Returns: how many notifications that was. 0 with more in the lane, for a client that reads: only where nothing more
    ///   of what is over may be taken out in this event (``SpentInEvent/mayExpire``).
    @discardableResult
    func sendFirst(of lane: DeliveryLane, to client: Client, effects: inout [Effect]) -> Int {
        // S4: a loss is announced before anything newer is delivered.
        if client.unreportedLoss != nil { announceLoss(to: client, effects: &effects) }
        let owed = sendOwed(to: client, effects: &effects)
        guard client.reads, !client.owed.hasReady else { return owed }
        // Flushed notifications go before anything newer.
        let lane = client.queue.isEmpty(.flushed) ? lane : .flushed
        guard dropExpired(in: lane, of: client, effects: &effects) else { return owed }
        guard let first = client.queue.first(in: lane) else { return owed }
        guard hasRoomOnTheWay(for: client.peer, first.byteCount) else {
            holdBack(client.peer, effects: &effects)
            return owed
        }
        invariant(client.presence != .gone, "D8: a client that left the bus gets nothing")
        let isCarried = first.carriedBytes < maxBytes
        if client.options.batches, isCarried {
            return owed + sendBatch(of: lane, to: client, effects: &effects)
        }
        guard let entry = changeQueue(of: client, { $0.popDue(lane) }) else { return owed }
        if isCarried {
            effects.append(.deliver(makeDelivery(of: entry, to: client)))
        } else {
            loseToBus(client, effects: &effects)
        }
        noteSent(1, of: lane, to: client, effects: &effects)
        countSent(
            isCarried ? entry.byteCount : Self.signalSize,
            telling: isCarried ? FlowWindow.Told(notifications: 1) : FlowWindow.Told(losses: 1), to: client.peer,
            effects: &effects)
        return owed + 1
    }

    /// The bus carries nothing as large. It is told in its place, so that it is known before the next.
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

    /// Takes out what is first in a lane and whose time is over: it gets no number, and is no loss.
    ///
    /// - Returns: whether the next is not; false when there is more of it than one event may take out.
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

    /// All that is due in the lane goes in one message, as far as a batch, the bus and the room on the way go.
    private func sendBatch(of lane: DeliveryLane, to client: Client, effects: inout [Effect]) -> Int {
        var batch = Batch(maxBytes: client.peer.flow.room)
        // So that no more bytes are unconfirmed than of single ones.
        var isFull = false
        while let next = client.queue.first(in: lane) {
            isFull = !batch.hasRoom(for: next.byteCount)
            // The first was not over a moment ago.
            if !batch.deliveries.isEmpty, let expiry = next.notification.expiry, expiry <= clock.uptime() { break }
            guard next.carriedBytes < maxBytes, batch.takes(next, maxCarried: maxBytes),
                hasRoomOnTheWay(for: client.peer, next.byteCount, behind: batch.byteCount),
                let entry = changeQueue(of: client, { $0.popDue(lane) })
            else { break }
            batch.append(makeDelivery(of: entry, to: client), entry)
        }
        let count = batch.deliveries.count
        turns.tombstone(client, in: lane)
        effects.append(.deliverTogether(client.name, batch.deliveries))
        noteSent(count, of: lane, to: client, effects: &effects)
        countSent(
            batch.byteCount, telling: FlowWindow.Told(notifications: count), fills: isFull, to: client.peer,
            effects: &effects)
        return count
    }

    /// What goes to a client together at most, in notifications and in bytes, for whoever puts together what was taken
    /// apart (F1).
    public static var maxTogether: (count: Int, byteCount: Int) { (Batch.maxCount, FlowWindow.bytes) }

    /// Gives the notification its number among those of the client.
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

    /// By today's time, which may have been set since it was posted: what counts is how long it still lasts.
    func expiryTime(of notification: Notification) -> Int64? {
        notification.expiry.map { clock.time() + ($0 - clock.uptime()) }
    }

    /// So many left a lane. Remembered when they are on their way: a crash in between repeats them, with their serials, and
    /// does not lose them.
    private func noteSent(_ count: Int, of lane: DeliveryLane, to client: Client, effects: inout [Effect]) {
        guard client.remembersDue else { return }
        #if CARILLON_PLANTED
            let isLogged = !PlantedFault.strikes(.sentStaysLogged)
        #else
            let isLogged = true
        #endif
        if isLogged, remembersChanges {
            meter.count(count)
            for _ in 0..<count { remember(.popped(client.name, lane), effects: &effects) }
        }
        client.remembersDue = client.queue.hasDue
    }

    /// From now on what is due to the client is remembered, as it may have to wait for long. What is only staged for
    /// its turn is not: it is on its way.
    func rememberDue(of client: Client, effects: inout [Effect]) {
        guard !client.remembersDue, client.queue.hasDue else { return }
        client.remembersDue = true
        guard remembersChanges else { return }
        client.queue.forEachDue { entry, lane in
            effects.append(
                .remember(.queuedDue(client.name, entry.notification, observers: entry.observers.ids, lane)))
        }
    }
}
