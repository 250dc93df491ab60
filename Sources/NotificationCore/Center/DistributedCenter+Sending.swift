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
    public func hasPassed(_ mark: SendingMark) -> Bool {
        turns.hasPassed(mark)
    }

    /// Sends what is ready in `lane` and in more urgent ones, the most urgent first.
    ///
    /// - Parameter limit: of the turns that are taken.
    public func sendReady(upTo lane: DeliveryLane, limit: Int, effects: inout [Effect]) {
        defer { eventEnded() }
        for _ in 0..<limit {
            guard let first = turns.first, first <= lane else { return }
            takeTurn(in: first, effects: &effects)
        }
    }

    /// Sends all that is ready, the most urgent first: a barrier.
    public func sendAllReady(effects: inout [Effect]) {
        defer { eventEnded() }
        takeAllTurns(effects: &effects)
    }

    func takeAllTurns(effects: inout [Effect]) {
        while let lane = turns.first { takeTurn(in: lane, effects: &effects) }
    }

    /// Pushes out what is more than may be staged.
    func sendOverfull(effects: inout [Effect]) {
        while turns.isOverfull, let lane = turns.first { takeTurn(in: lane, effects: &effects) }
    }

    private func takeTurn(in lane: DeliveryLane, effects: inout [Effect]) {
        guard let client = turns.next(in: lane), client.reads else { return }
        sendFirst(of: lane, to: client, effects: &effects)
        if client.reads, client.queue[turnsOf: lane] == 0, !client.queue.isEmpty(lane) {
            turns.append(client, in: lane, byteCount: 0)
        }
    }

    /// Sends what is first in a lane of a client that reads.
    ///
    /// - Returns: whether there was something.
    @discardableResult
    func sendFirst(of lane: DeliveryLane, to client: Client, effects: inout [Effect]) -> Bool {
        guard let first = client.queue.first(in: lane) else { return false }
        guard hasRoomOnTheWay(for: client.peer, first.byteCount) else {
            holdBack(client.peer, effects: &effects)
            return false
        }
        guard let entry = changeQueue(of: client, { $0.popDue(lane) }) else { return false }
        invariant(!client.isGone, "D8: a client that left the bus gets nothing")
        invariant(client.unannounced == nil, "S4: a loss is announced before anything newer is delivered")
        client.counts.sequence += 1
        let isCarried = entry.notification.byteCount + 8 * entry.observers.count < mostBytes
        if isCarried {
            client.counts.delivered += 1
            counters.delivered += 1
            effects.append(
                .deliver(
                    Delivery(
                        client: client.name, notification: entry.notification, observers: entry.observers,
                        sequence: client.counts.sequence)))
        } else {
            // In its place, so that it is known before the next.
            client.counts.dropped += 1
            counters.dropped += 1
            effects += [
                .overflowed(client.name, .busLimits),
                .dropped(
                    client.name, count: 1, observers: [], reason: .busLimits, sequence: client.counts.sequence),
            ]
        }
        if client.remembersDue {
            // Remembered when it is on its way: a crash in between repeats it, with its serial, and does not lose it.
            #if CARILLON_PLANTED
                let isLogged = !PlantedFault.strikes(.sentStaysLogged)
            #else
                let isLogged = true
            #endif
            if isLogged { remember(.popped(client.name, lane), effects: &effects) }
            client.remembersDue = client.queue.hasDue
        }
        countSent(
            isCarried ? entry.byteCount : Self.signalSize,
            telling: isCarried ? FlowWindow.Told(notifications: 1) : FlowWindow.Told(losses: 1), to: client.peer,
            effects: &effects)
        return true
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
