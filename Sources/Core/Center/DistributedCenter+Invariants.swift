// SPDX-License-Identifier: Apache-2.0
/// Invariants: conditions on the center's state that hold between events, with any input. Totals equal the sums of
/// their parts, queues and index agree, and a client that left owns nothing.
///
/// Cheap checks stand in the code where an invariant could break, and are in every build: ``invariant(_:_:)``. The
/// checks here visit all state, and run in debug builds and tests. Their texts begin with the rule of
/// `docs/semantics.md` that would be broken.
extension DistributedCenter {
    /// Ends an event. Every public method that is an event calls it with `defer`. It ends the count of steps, resets
    /// the work budget, and gives slots to clients whose work was postponed. Debug builds then check the invariants,
    /// the less often the more state there is, so that the cost of the checks stays a fraction of the work of the
    /// events.
    ///
    /// - Parameter event: the name of the event for the meter.
    @inline(__always)
    func eventEnded(_ event: StaticString = #function) {
        meter.endEvent(event)
        spent = SpentInEvent()
        if !waitingForNextEvent.isEmpty { rescheduleWaiting() }
        assert(isWholeIfDue())
    }

    /// Checks the invariants if enough events have ended since the last check. Always true: an argument of `assert`.
    private func isWholeIfDue() -> Bool {
        guard checksInvariants else { return true }
        eventsSinceCheck += 1
        let size =
            peers.count + index.count + Int(counters.queued) + schedule.count + postingQueues.count + retained.count
        guard eventsSinceCheck >= 4 * size else { return true }
        eventsSinceCheck = 0
        do throws(BrokenInvariant) {
            try checkInvariants()
        } catch {
            assertionFailure("broken invariant: \(error)")
        }
        return true
    }

    /// Checks all invariants. The tests compare the center with a model and call it after each event.
    package func checkInvariants() throws(BrokenInvariant) {
        // The steps of a check do not count for an event.
        defer { meter.forget() }
        var numbers = Set<Int>()
        for (name, client) in clients {
            try require(name == client.name && client.presence != .gone, "D8: \(name) is a client that is there")
            try require(numbers.insert(client.number).inserted, "\(name) has a number of its own")
            try require(peers[name] === client.peer && client.peer.isClient, "D8: \(name) has its connection")
            try check(client)
        }
        let all = clients.values
        try require(
            index.count == all.reduce(0) { $0 + $1.observers.count }, "D8: the index has the clients' observers alone")
        try require(
            Int(counters.queued) == all.reduce(0) { $0 + $1.queue.count },
            "E1: the total of queued notifications is the sum over clients")
        for client in all {
            try require(
                client.peer.usage[.clients] == 1 && client.peer.usage[.observers] == client.observers.count
                    && client.peer.usage[.queuedBytes] == client.queue.byteCount
                    && client.peer.usage[.intervalBytes] == client.queue.intervalBytes
                    && client.peer.usage[.observerBytes]
                        == client.observers.values.reduce(0) { $0 + $1.registration.byteCount },
                "E4: \(client.name) pays for what it has")
        }
        try checkAccounts()
        try require(
            counters.unmatched <= counters.posted && counters.posted <= lastSerial, "D4: each post has a serial")
        try schedule.checkInvariants(clients: clients)
        try postingQueues.checkInvariants()
        try checkRetained()
        try checkFollowers()
    }

    /// Checks the counts, the queue and the slots of one client.
    private func check(_ client: Client) throws(BrokenInvariant) {
        let name = client.name
        var (refusals, monitors, intervals) = (0, 0, 0)
        for (id, observer) in client.observers {
            let (entry, registration) = (index[observer.position], observer.registration)
            try require(
                entry.client === client && entry.id == id && registration.client == name && registration.id == id,
                "D8: observer \(id.rawValue) is that of \(name)")
            try require(id.rawValue <= lastObserver, "no observer has a number that was not given yet")
            if !observer.registration.options.automaticSuspension { refusals += 1 }
            if observer.registration.options.isMonitor { monitors += 1 }
            if observer.registration.options.minimumInterval > 0 { intervals += 1 }
        }
        try require(client.refusalsOfAutomation == refusals, "A2: \(name) has \(refusals) observers that refuse")
        try require(client.observersWithInterval == intervals, "R5: \(name) has \(intervals) observers with intervals")
        try require(client.monitors == monitors, "B3: \(name) has \(monitors) observers that monitor")
        try require(client.activityEpoch <= lastActivityEpoch, "S5: no epoch is from the future")
        try client.queue.checkInvariants(of: name, lastSerial: lastSerial) { client.observers[$0] != nil }
        // A restored client gets slots and announcements only when the restoring ends, so the other checks do not hold
        // before.
        guard client.isWatched else { return }
        try require(!client.queue.hasHeld || client.isSuspended, "S2: only a suspended client has held notifications")
        guard client.reads else {
            return try require(
                !remembersChanges || !client.queue.hasDue || client.isDueLogged || client.presence != .here,
                "E3: the due notifications of \(name), which does not read, are logged")
        }
        try require(client.unreportedLoss == nil, "S4: \(name) reads, so its losses are reported")
        guard !client.replays.hasReady else {
            return try require(
                client.queue[scheduledIn: .immediate] > 0, "R2: the replay of \(name), which reads, has a slot")
        }
        guard client.queue.hasDue else { return }
        for lane in DeliveryLane.allCases where !client.queue.isEmpty(lane) {
            try require(
                client.queue[scheduledIn: lane] > 0,
                "M6: \(name), which reads, has a slot in each lane with due notifications: \(lane)")
        }
    }
}
