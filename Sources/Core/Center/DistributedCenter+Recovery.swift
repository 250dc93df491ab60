// SPDX-License-Identifier: Apache-2.0
/// Recovery (E3): the changes that the recovery log keeps, their restoring in a new process, and the handover to a new
/// connection.
///
/// The driver restores in this order: ``restore(_:)`` for each logged change,
/// ``restoreNumbers(lastSerial:lastObserver:)``, and ``finishRestoring(effects:)``. Until then clients are sent
/// nothing.
extension DistributedCenter {
    /// Writes a change to the recovery log, if there is one. A change of the excess, the usage beyond a lowered limit
    /// (``Excess``), is written first.
    func remember(_ change: @autoclosure () -> Change, effects: inout [Effect]) {
        guard remembersChanges else { return }
        if isExcessToRemember { rememberExcess(effects: &effects) }
        effects.append(.remember(change()))
    }

    /// Restores a change that an earlier process logged. A change that contradicts the present state comes from a
    /// damaged log and is ignored.
    ///
    /// - Returns: whether the change was applied.
    public func restore(_ change: Change) -> Bool {
        defer { eventEnded() }
        return takeOver(change)
    }

    /// Applies a change of an earlier process or center, as ``restore(_:)`` does.
    private func takeOver(_ change: Change) -> Bool {
        meter.count()
        switch change {
        case .client(let name, let counts):
            guard clients[name] == nil else { return false }
            let isDamaged =
                max(counts.sequence, counts.delivered, counts.dropped, counts.unkept) > Self.greatestNumber
                || counts.unconfirmed > counts.sequence
            // Counts from corrupt bytes are not used, but the client is restored.
            guard !isDamaged else {
                makeClient(name).counts = ClientCounts()
                return true
            }
            let client = makeClient(name)
            // ``restoreNumbers(lastSerial:lastObserver:)`` reports the last numbers, `unconfirmed`, as lost. The report
            // has these numbers itself, so the sequence goes back to the last confirmed number.
            client.restoredCounts = counts
            client.counts = ClientCounts(
                sequence: counts.sequence - counts.unconfirmed, delivered: counts.delivered, dropped: counts.dropped)
            return true
        case .observer(let registration):
            guard let client = clients[registration.client], client.observers[registration.id] == nil,
                registration.id.rawValue <= Self.greatestNumber
            else { return false }
            insert(registration, of: client)
            if registration.id.rawValue < lastObserver { isIndexInOrder = false }
            lastObserver = max(lastObserver, registration.id.rawValue)
            return true
        case .clientGone(let name):
            let isReleased = releaseAtExit(of: name) > 0
            return withClient(name) { forget($0) } || isReleased
        case .observersRemoved(let name, let ids): return withClient(name) { remove(ids, of: $0) }
        // Policy has withdrawn these observers (P3). Their removal is announced until the client has confirmed that signal.
        case .observersRevoked(let name, let ids):
            let ids = ids.filter { $0.rawValue <= Self.greatestNumber }
            return withClient(name) {
                remove(ids, of: $0)
                $0.addRevocation(of: ids)
            }
        case .revocationsKnown(let name): return withClient(name) { $0.revocation = nil }
        case .suspension(let name, let isSuspended): return withClient(name) { $0.explicitSuspension = isSuspended }
        case .suspensionOverridden(let name, let isSuspended):
            return withClient(name) { $0.override = isSuspended.map { SuspensionOverride(isSuspended: $0) } }
        case .interestFollowed(let name):
            return withClient(name) { _ = interestFollowers.add(name, number: $0.number) }
        case .valuesFollowed(let name):
            return withClient(name) { _ = valueFollowers.add(name, number: $0.number) }
        case .options(let name, let options): return withClient(name) { $0.options = options }
        case .suspendedByActivity(let name, let isSuspended):
            return withClient(name) { $0.wasSuspendedByActivity = isSuspended }
        case .suspensionNoticePending(let name, let isPending):
            return withClient(name) { $0.suspensionNoticePending = isPending }
        case .queuedDue(let name, let notification, let observers, let lane):
            return restore(notification, of: name, for: observers) { client, observers in
                guard client.queue.mayBeDue(notification.serial, in: lane) else { return false }
                client.isDueLogged = true
                let entry = DueQueue.Entry(notification: notification, observers: observers)
                changeQueue(of: client) { $0.append(entry, in: lane) }
                return true
            }
        case .held(let name, let notification, let observers, let coalescing):
            return restore(notification, of: name, for: observers) { client, observers in
                guard client.queue.mayBeHeld(notification.serial) else { return false }
                let coalescing = coalescing.isEmpty ? [] : coalescing.filter(Set(observers.ids).contains)
                changeQueue(of: client) {
                    _ = $0.hold(
                        notification, observers: observers,
                        coalescing: coalescing.isEmpty ? nil : ObserverList(coalescing))
                }
                return true
            }
        case .throttled(let name, let notification, let observers):
            return restore(notification, of: name, for: observers) { client, observers in
                let intervalObservers = intervalObservers(of: client, observers.ids)
                guard !intervalObservers.isEmpty else { return false }
                changeQueue(of: client) { queue in
                    queue.changeIntervals { $0.restore(notification, for: intervalObservers) }
                }
                return true
            }
        case .throttleEnded(let client, let key, let observers):
            return queue(client) { queue in queue.changeIntervals { _ = $0.forget(key, for: observers) } }
        case .flushed(let name):
            return withClient(name) { client in
                // Held replays go out with the held notifications.
                client.replays.release()
                guard client.queue.hasHeld else { return }
                client.isDueLogged = true
                changeQueue(of: client) { $0.flush() }
            }
        case .retained(let notification, let retention):
            guard notification.serial <= Self.greatestNumber, retained.mayPut(notification.serial) else { return false }
            lastSerial = max(lastSerial, notification.serial)
            let poster = notification.poster
            // Nothing shows yet whether a poster that is no client is still there. Until it calls, it counts as gone.
            let payer = restoredPayer(of: poster) ?? Peer(name: poster, account: account(.connection(poster)))
            if peers[poster] == nil { payer.isKnown = false }
            keep(RetainedValue(notification: notification, retention: retention, payer: payer))
            return true
        case .unretained(_, let key):
            guard let value = retained.remove(key) else { return false }
            giveBack(value)
            return true
        case .replays(let name, let replay):
            guard let client = clients[name], client.observers[replay.observer] != nil,
                replay.through <= Self.greatestNumber
            else { return false }
            lastSerial = max(lastSerial, replay.through)
            client.replays.set(replay)
            return true
        case .popped(let name, let lane): return queue(name) { _ = $0.popDue(lane) }
        case .postQueued(let poster, let post, let coalescing):
            _ = putInQueue(post, of: restoredPayer(of: poster) ?? peer(poster), coalescing: coalescing)
            return true
        case .postsReplaced(let poster, let name, let object, let coalescing):
            _ = removeQueued(of: poster, similarTo: name, object, coalescing: coalescing)
            return true
        case .postsWithdrawn(let poster, let name, let object):
            return withdrawQueued(of: poster, name: name, object: object).count > 0
        case .postTaken(let poster, let style): return takeQueued(style, of: poster)
        // The restored counts come from the counters file. They include the reported losses, and no others. Until its
        // report, a loss is added here; the record of the report removes it again.
        case .lost(let name, let reason):
            return withClient(name) { if dropOldest(of: $0, because: reason) { $0.counts.dropped += 1 } }
        case .unreportedLoss(let name, let count, let observers, let reason):
            // A greater count comes from corrupt bytes, and could overflow the sum of counts.
            guard count <= Self.greatestNumber / 2 else { return false }
            return withClient(name) {
                $0.counts.dropped &-= $0.unreportedLoss?.count ?? 0
                $0.counts.dropped &+= count
                $0.unreportedLoss = Client.Loss(count: count, observers: observers, reason: reason)
            }
        case .excess(let key, let excess): return takeOver(excess, key)
        case .lossAnnounced(let name):
            return withClient(name) {
                $0.counts.dropped &-= $0.unreportedLoss?.count ?? 0
                $0.unreportedLoss = nil
            }
        }
    }

    /// Restores a waiting notification for those of `observers` that the client still has. Its serial is not assigned
    /// again.
    ///
    /// - Parameter body: puts the notification into the client's queue; returns false if it does not fit there.
    private func restore(
        _ notification: Notification, of name: ClientName, for observers: [ObserverID],
        _ body: (Client, ObserverList) -> Bool
    ) -> Bool {
        guard let client = clients[name], notification.serial <= Self.greatestNumber else { return false }
        var observers = observers
        observers.removeAll { client.observers[$0] == nil }
        guard !observers.isEmpty, body(client, ObserverList(observers)) else { return false }
        lastSerial = max(lastSerial, notification.serial)
        return true
    }

    /// Calls `body` with the client of this name.
    ///
    /// - Returns: whether there is one.
    private func withClient(_ name: ClientName, _ body: (Client) -> Void) -> Bool {
        guard let client = clients[name] else { return false }
        body(client)
        return true
    }

    /// Changes the queue of the client of this name.
    ///
    /// - Returns: whether there is one.
    private func queue(_ name: ClientName, _ body: (inout DeliveryQueue) -> Void) -> Bool {
        withClient(name) { changeQueue(of: $0, body) }
    }

    /// Restores the numbers that an earlier process used up, so that none is assigned again. Call it after the last
    /// change of that process.
    ///
    /// The counters beside the log show how many of a client's last sequence numbers may not have left that process.
    /// These notifications are reported to the client as lost. They may still be in the restored queue, if the log was
    /// not written after they were sent. They are removed from it, so that none is both lost and delivered.
    public func restoreNumbers(lastSerial: UInt64, lastObserver: UInt64) {
        // Observers were restored client by client, but must match in the order of registration.
        if !isIndexInOrder { index.sort { $0.id.rawValue } }
        isIndexInOrder = true
        for client in clients.values {
            guard let counts = client.restoredCounts.take() else { continue }
            if counts.lastSerial > 0 { changeQueue(of: client) { $0.take(through: counts.lastSerial) } }
            // `unkept` is greater than 0 only if the log has no queues. Then all waiting notifications are lost.
            let count = counts.unconfirmed + counts.unkept
            guard count > 0 else { continue }
            client.counts.dropped &+= count
            var loss = client.unreportedLoss ?? Client.Loss(count: 0, observers: [], reason: .serviceRestarted)
            loss.count += count
            loss.reason = .serviceRestarted
            loss.observers.formUnion(client.observers.keys)
            client.unreportedLoss = loss
            client.lastLoss = loss.reason
        }
        // Code under CARILLON_PLANTED injects a fault, in builds that test whether the simulation finds it (E7).
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.reusedSerial) { return }
        #endif
        if lastSerial <= Self.greatestNumber { self.lastSerial = max(self.lastSerial, lastSerial) }
        if lastObserver <= Self.greatestNumber { self.lastObserver = max(self.lastObserver, lastObserver) }
    }

    /// The peer of a poster, if there is one. The same peer must be charged for its queued posts, its connection and
    /// its values, in any order of restoring.
    private func restoredPayer(of poster: ClientName) -> Peer? {
        postingQueues.payer(of: poster) ?? peers[poster] ?? retained.payer(named: poster)
    }

    /// Marks all suspensions as not announced, because the last changes may be missing in the damaged log.
    public func markSuspensionsUnacked() {
        for client in clients.values { client.suspensionNoticePending = true }
    }

    /// The maximum of a restored number. A greater one comes from corrupt bytes. Sums of several such numbers do not
    /// overflow, because 64 bits have space for 16 of them.
    private static let greatestNumber: UInt64 = 1 << 60

    /// Handles the end of the service's connection to the bus, after which nothing can be sent. All due notifications
    /// are logged, and unacknowledged control signals are marked as possibly lost.
    public func connectionEnded(effects: inout [Effect]) {
        defer { eventEnded() }
        meter.count(clients.count)
        for client in clients.values {
            rememberDue(of: client, effects: &effects)
            markControlUnacked(to: client, effects: &effects)
        }
    }

    /// Prepares the end of the process, which a later one continues. From now on clients are sent nothing, because
    /// nothing would show whether the bus carried such late messages. All due notifications are logged instead.
    public func beginEnding(effects: inout [Effect]) {
        defer { eventEnded() }
        isEnding = true
        meter.count(clients.count)
        for client in clients.values {
            client.isHandedOver = true
            rememberDue(of: client, effects: &effects)
        }
        // The slots, which are the entries of the send schedule, send nothing now. The answers to posters that wait
        // until these slots are processed are sent.
        processAllSlots(effects: &effects)
    }

    /// Resumes sending after ``beginEnding(effects:)``, because the state for a later process can't be saved.
    public func cancelEnding(effects: inout [Effect]) {
        defer { eventEnded() }
        guard isEnding else { return }
        isEnding = false
        meter.count(clients.count)
        for client in clients.values.sorted(by: { $0.name < $1.name }) {
            client.isHandedOver = false
            pump(client, effects: &effects)
        }
    }

    /// Takes over the state, the numbers and the counters of another center, which handles no more events. The driver
    /// calls it on a new center when the bus has closed the service's connection, after ``connectionEnded(effects:)``
    /// on the old center. ``finishRestoring(effects:)`` must follow.
    public func takeOver(_ other: DistributedCenter) {
        defer { eventEnded() }
        counters.posted = other.counters.posted
        counters.unmatched = other.counters.unmatched
        counters.delivered = other.counters.delivered
        counters.dropped = other.counters.dropped
        counters.coalesced = other.counters.coalesced
        counters.lostPosts = other.counters.lostPosts
        counters.unretained = other.counters.unretained
        counters.displaced = other.counters.displaced
        counters.expired = other.counters.expired
        // The deduplication IDs of other sessions' notifications: a copy may still arrive by another way.
        arrivals = other.arrivals
        other.forEachRememberedChange { _ = takeOver($0) }
        for (name, before) in other.clients {
            guard let client = clients[name] else { continue }
            client.possibleLoss = before.possibleLoss
        }
        restoreNumbers(lastSerial: other.lastSerial, lastObserver: other.lastObserver)
    }

    /// Ends the restoring: watches and probes the restored clients, and sends them their due notifications. For a
    /// client that left the bus meanwhile, the watch reports the departure.
    ///
    /// Activity is not restored, because it may have changed since. A client that inactivity had suspended is resumed,
    /// and gets an announcement of that, until the desktop reports its activity again.
    public func finishRestoring(effects: inout [Effect]) {
        defer { eventEnded() }
        // The earlier process may have ended before it could bring the queues within their total limit.
        isReclaimPending = isOverTotal
        restoreExcess(effects: &effects)
        meter.count(retained.count + clients.count + peers.count)
        // The service looks up the processes of restored connections. Their usage may then exceed the share of a process:
        // the part above the share is an excess, which is noted at the identification.
        for peer in peers.values { peer.isRestored = !peer.isIdentified }
        for value in retained.all where value.isWhileConnected && clients[value.notification.poster] == nil {
            removeRetained(value, effects: &effects)
        }
        // Posters of values that are no clients may still be there. The watch reports if one is not.
        for payer in retained.allPayers.sorted(by: { $0.name < $1.name }) where !payer.isKnown {
            watchDeparture(of: peer(payer.name, effects: &effects), effects: &effects)
        }
        // An at-exit post makes its poster a client. A restored poster of such a post that is no client has therefore
        // left, and no event will report its departure. Its at-exit posts become due now.
        for poster in postingQueues.postersUntilExit.sorted() where clients[poster] == nil {
            releaseAtExit(of: poster)
            remember(.clientGone(poster), effects: &effects)
        }
        for client in clients.values where !client.isWatched {
            // The earlier process announced this suspension to the client, unless the log says otherwise below.
            client.announcedSuspension = (client.isSuspended, client.suspensionCause)
            // Policy may deny a client its restored messages, so it gets none before its process is known.
            client.peer.awaitsIdentity = restoresOnlyIdentified && !client.peer.isIdentified
            watch(client, effects: &effects)
            if client.wasSuspendedByActivity {
                client.wasSuspendedByActivity = false
                #if CARILLON_PLANTED
                    let isAnnounced = !PlantedFault.strikes(.resumptionUnreported)
                #else
                    let isAnnounced = true
                #endif
                if isAnnounced { client.announcedSuspension = (true, .activity) }
                remember(.suspendedByActivity(client.name, false), effects: &effects)
            }
            if client.suspensionNoticePending { client.announcedSuspension = nil }
            announceSuspension(of: client, effects: &effects)
            if !client.isSuspended { flush(client, effects: &effects) }
            pump(client, effects: &effects)
            #if CARILLON_PLANTED
                if PlantedFault.strikes(.newServiceUnreported) { continue }
            #endif
            // The client may know an older list of names or values, so it gets a signal.
            interestFollowers.notifyAgain(client.number)
            valueFollowers.notifyAgain(client.number)
        }
        announceInterest(effects: &effects)
        announceRemovedValues(effects: &effects)
    }
}
