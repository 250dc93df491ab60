// SPDX-License-Identifier: Apache-2.0
/// Retained values (R1 to R3, R6, R8): stored by ``NotificationKey``, replayed to new observers that ask for them, read
/// and removed.
///
/// A value is not queued for each observer. The replay of an observer is a cursor (``RetainedReplay``) that takes the
/// values from the store when the in-flight quota has capacity. Thus each value is stored once, for any number of
/// observers.
extension DistributedCenter {
    /// A copy of a retained value, for callers that read values (R3).
    public struct Kept {
        public let notification: Notification
        public let retention: Retention
        /// The expiry, in microseconds since 1970 in UTC; nil for never. Only ``retainedValues(name:object:effects:)``
        /// sets it.
        public let expiryTime: Int64?
    }

    /// Returns the values of this name and object, from all origins, in the order of their serials.
    ///
    /// - Parameters:
    ///   - name: the name; empty for any.
    ///   - object: the object; empty for any.
    public func retainedValues(name: String, object: String, effects: inout [Effect]) -> [Kept] {
        defer { eventEnded() }
        removeExpired(effects: &effects)
        let values = retained.matching(
            name: name.isEmpty ? nil : name, object: object.isEmpty ? nil : object, now: clock.uptime())
        return values.map {
            Kept(
                notification: $0.notification, retention: $0.retention,
                expiryTime: expiryTime(of: $0.notification))
        }
    }

    /// Removes a slice of the values of this name and object, from all origins, the oldest first. Between two slices
    /// other clients may see some of the values gone and others not.
    ///
    /// - Parameters:
    ///   - name: the name; empty for any.
    ///   - object: the object; empty for any.
    ///   - through: the serial of the newest value to remove. Values that are posted between the slices have greater
    ///     ones, and stay.
    ///   - most: the maximum number of values in a slice.
    /// - Returns: the number of values removed in this slice, and whether there may be more.
    public func removeRetained(
        name: String, object: String, through: UInt64 = .max, atMost most: Int = DistributedCenter.sliceSize,
        effects: inout [Effect]
    ) -> (count: Int, isMore: Bool) {
        defer { eventEnded() }
        removeExpired(effects: &effects)
        let values = Array(
            retained.matching(
                name: name.isEmpty ? nil : name, object: object.isEmpty ? nil : object, now: clock.uptime()
            ).prefix(most))
        let removed = values.prefix { $0.notification.serial <= through }
        meter.count(removed.count)
        for value in removed { removeRetained(value, effects: &effects) }
        return (removed.count, removed.count == most)
    }

    /// Removes the value of one name, object and origin. An empty object means none.
    ///
    /// - Returns: whether there was a value.
    public func removeRetained(_ key: NotificationKey, effects: inout [Effect]) -> Bool {
        defer { eventEnded() }
        removeExpired(effects: &effects)
        // Code under CARILLON_PLANTED injects a fault, in builds that test whether the simulation finds it (E7).
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.otherOriginsRemoved) {
                return removeRetained(name: key.name, object: key.object, effects: &effects).count > 0
            }
        #endif
        guard let value = retained[key], !value.isOver(at: clock.uptime()) else { return false }
        removeRetained(value, effects: &effects)
        return true
    }

    // MARK: Retention

    /// Checks whether a post may be retained: whether the limits of its payer and origin, and the totals, have capacity
    /// for the value. The older value of the key, which the new one replaces, frees its space.
    ///
    /// - Parameter peer: the payer of the value, even if it has left; nil for a connection that uses nothing yet.
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)``.
    func checkRetaining(_ post: PendingPost, from peer: Peer?, effects: inout [Effect]) throws(CenterError) {
        guard post.retention != nil else { return }
        #if CARILLON_PLANTED
            let removesExpired = !PlantedFault.strikes(.expiredTakesSpace)
        #else
            let removesExpired = true
        #endif
        if removesExpired { removeExpired(effects: &effects) }
        let before = retained[post.key]
        // Whether the older value counts in the limits of this payer and origin: it may have another payer.
        let isOwn = before.map { retained.isCounted($0, for: peer) } ?? false
        let count = before == nil ? 1 : 0
        let bytes = post.byteCount + RetainedValue.overhead - (before?.byteCount ?? 0)
        // R6: a bridge posts for many machines. The limits hold for each machine, so that none uses up the space of
        // others.
        let own = retained.amount(of: peer?.name, from: post.key.origin)
        try limits.check(.retainedPerClient, own.count + (isOwn ? 0 : 1))
        let ownBytes = own.byteCount - (isOwn ? before!.byteCount : 0)
        try limits.check(.retainedBytesPerClient, ownBytes + post.byteCount + RetainedValue.overhead)
        try checkCapacity(for: peer, .retained, adding: count)
        try checkCapacity(for: peer, .retainedBytes, adding: bytes)
    }

    /// Removes values of departed posters, as far as a new value needs the space. ``DepartedPayers`` has their order.
    private func displaceValues(for value: RetainedValue, effects: inout [Effect]) {
        // Computed anew after each removal, because the removed value may be the one of the same key.
        func isTooMuch() -> Bool {
            let before = retained[value.notification.key]
            return totals[.retained] + (before == nil ? 1 : 0) > limits[.retained]
                || totals[.retainedBytes] + value.byteCount - (before?.byteCount ?? 0) > limits[.retainedBytes]
        }
        while isTooMuch(), let name = departed.largest, let value = retained.first(paidBy: name) {
            displace(value, effects: &effects)
        }
    }

    /// Removes a value to make space for others.
    func displace(_ value: RetainedValue, effects: inout [Effect]) {
        removeRetained(value, effects: &effects)
        counters.displaced += 1
    }

    /// Asks the driver to report the departure of a payer of values that is not a client. Clients are watched anyway.
    func watchDeparture(of payer: Peer, effects: inout [Effect]) {
        guard payer.isKnown, !payer.isClient, !payer.isDepartureWatched else { return }
        payer.isDepartureWatched = true
        effects.append(.watchDeparture(payer.name))
    }

    /// Retains a notification. A post from a posting queue may come from a poster that has left; then it is not
    /// retained if the value would end with the poster's connection. The poster of such a value is a client until it
    /// leaves (``checkPosting(_:_:from:effects:)``).
    ///
    /// - Parameter payer: the poster, even if it has left since.
    func retain(
        _ notification: Notification, _ retention: Retention, from payer: Peer, effects: inout [Effect]
    ) {
        guard !retention.whileConnected || clients[payer.name] != nil else { return }
        let value = RetainedValue(notification: notification, retention: retention, payer: payer)
        displaceValues(for: value, effects: &effects)
        let replaced = keep(value)
        // The other sessions still have the replaced value, and do not get this one.
        if let replaced, replaced.goesToAllSessions, !retention.goesToAllSessions {
            effects.append(.exportEnded(notification.key))
        }
        watchDeparture(of: payer, effects: &effects)
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.unloggedValue) { return }
        #endif
        remember(.retained(notification, retention), effects: &effects)
    }

    /// Stores a value and charges its payer.
    ///
    /// - Returns: the retention of the value that it replaced; nil for none.
    @discardableResult
    func keep(_ value: RetainedValue) -> Retention? {
        let replaced = retained.put(value)
        charge(value.payer, .retained, 1)
        charge(value.payer, .retainedBytes, value.byteCount)
        // Credited last: a payer that uses nothing may be forgotten.
        if let replaced { giveBack(replaced) }
        return replaced?.retention
    }

    /// Removes a value: credits it, logs the removal, and sends the signals about it.
    func removeRetained(_ value: RetainedValue, effects: inout [Effect]) {
        let key = value.notification.key
        guard let removed = retained.remove(key) else { return }
        giveBack(removed)
        remember(.unretained(value.notification.poster, key), effects: &effects)
        if value.retention.goesToAllSessions { effects.append(.exportEnded(key)) }
        noteValueRemoved(of: value.notification.poster, effects: &effects)
    }

    /// Credits a value that was removed. A payer that uses nothing else may be forgotten.
    func giveBack(_ value: RetainedValue) {
        charge(value.payer, .retained, -1)
        charge(value.payer, .retainedBytes, -value.byteCount)
        let payer = value.payer
        // A watched payer of values may have left the list of unregistered peers. Without values it is listed again, so
        // that it can be forgotten.
        if payer.isDepartureWatched, !payer.isClient, payer.usage[.retained] == 0 { noteUnregistered(payer) }
        forgetIfUnused(payer)
    }

    /// Removes values with `while-connected` of a poster that leaves, the oldest first.
    func removeRetained(ofConnection poster: ClientName, atMost most: Int = .max, effects: inout [Effect]) {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.staleValue) { return }
        #endif
        var left = most
        while left > 0, let value = retained.firstOfConnection(poster) {
            removeRetained(value, effects: &effects)
            left -= 1
        }
    }

    /// Removes expired values. There is no timer: every event that reads values removes expired ones first. One event
    /// removes a bounded number (``SpentInEvent/mayExpire``). The others still count against the limits, but no reader
    /// gets them.
    func removeExpired(effects: inout [Effect]) {
        guard !retained.isEmpty else { return }
        let now = clock.uptime()
        while spent.mayExpire, let value = retained.expired(at: now) {
            spent.expired += SpentInEvent.stepsOfValue
            removeRetained(value, effects: &effects)
            counters.expired += 1
        }
    }

    // MARK: Other sessions (R8)

    /// Returns the first value with the option `all-sessions`, and its serial. By repeated calls the service sends the
    /// existing values to another session.
    ///
    /// - Parameters:
    ///   - after: the serial is greater than this one.
    ///   - through: the serial is at most this one.
    public func valueForSessions(after: UInt64, through: UInt64) -> (value: ExportedNotification, serial: UInt64)? {
        guard let value = retained.firstForSessions(after: after, through: through) else { return nil }
        let notification = value.notification
        return (
            ExportedNotification(
                name: notification.name, object: notification.object, userInfo: notification.userInfo,
                retention: value.retention, expiry: notification.expiry, serial: notification.serial,
                time: notification.time), notification.serial
        )
    }

    /// The serial of the last post: the end of a replay of values to another session.
    public var newestSerial: UInt64 { lastSerial }

    /// The values that came from other sessions of this machine, in no particular order.
    public var valuesFromSessions: some Sequence<Kept> {
        retained.fromSessions.map { Kept(notification: $0.notification, retention: $0.retention, expiryTime: nil) }
    }

    /// Returns the value of a key; nil for none, and for an expired one.
    public func value(of key: NotificationKey) -> Kept? {
        guard let value = retained[key], !value.isOver(at: clock.uptime()) else { return nil }
        return Kept(notification: value.notification, retention: value.retention, expiryTime: nil)
    }

    // MARK: Replay (R2)

    /// Begins the replay of values for an observer that was just registered and has the option `retained`.
    func beginReplay(_ registration: Registration, to client: Client, effects: inout [Effect]) {
        #if CARILLON_PLANTED
            let removesExpired = !PlantedFault.strikes(.expiredReplayed)
        #else
            let removesExpired = true
        #endif
        if removesExpired { removeExpired(effects: &effects) }
        guard !retained.isEmpty else { return }
        let behavior = registration.options.behaviorWhileSuspended
        // The client's suspension applies to values as to other notifications: drop, hold, or deliver immediately (S1).
        guard !client.isSuspended || behavior != .drop else { return }
        let replay = RetainedReplay(
            observer: registration.id, after: 0, through: lastSerial,
            isHeld: client.isSuspended && behavior != .deliverImmediately)
        client.replays.set(replay)
        remember(.replays(client.name, replay), effects: &effects)
        guard !replay.isHeld else { return }
        if client.reads {
            schedule.append(client, in: .immediate, byteCount: 0)
        } else {
            probeBacklogIfNeeded(for: client.peer, effects: &effects)
        }
    }

    /// Sends the ready replays of a client that reads, before anything newer, as far as its window and the in-flight
    /// quota allow. The remaining values continue in the client's next slot.
    ///
    /// - Returns: the number of sent notifications.
    func sendReplays(to client: Client, effects: inout [Effect]) -> Int {
        guard client.replays.hasReady else { return 0 }
        #if CARILLON_PLANTED
            let removesExpired = !PlantedFault.strikes(.expiredReplayed)
        #else
            let removesExpired = true
        #endif
        if removesExpired { removeExpired(effects: &effects) }
        // If expired values remain, the event may remove no more of them, and the search of each observer would have to
        // skip them. Therefore the replays wait for the next event.
        guard retained.expired(at: clock.uptime()) == nil || !removesExpired else {
            scheduleReplays(of: client)
            return 0
        }
        var (count, left) = (0, Self.maxReplaysAtOnce)
        while client.reads, left > 0, let replay = client.replays.first {
            meter.count()
            left -= 1
            guard let sent = send(replay, to: client, effects: &effects) else { break }
            count += sent
        }
        scheduleReplays(of: client)
        return count
    }

    /// The maximum number of steps in one slot, before the slots of other clients. A step sends a message, or finds the
    /// end of an observer's replay.
    private static let maxReplaysAtOnce = 128

    /// Makes one step of one observer's replay, and moves its cursor:
    ///
    /// 1. Without a further value the replay ends.
    /// 2. A value that is too large for the bus is reported as lost.
    /// 3. Other values are sent: one, or for a client with the option `batches` as many as one message takes.
    ///
    /// - Returns: the number of sent notifications, where a reported loss counts as one. It is 0 at the end of the
    ///   replay, and nil when the in-flight quota has no capacity.
    private func send(_ before: RetainedReplay, to client: Client, effects: inout [Effect]) -> Int? {
        var replay = before
        guard let registered = client.observers[replay.observer] else {
            preconditionFailure("R2: a replay belongs to an observer of the client")
        }
        let registration = registered.registration
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.incompleteReplay, oneOf: 4) { replay.after = replay.through }
        #endif
        guard let first = next(of: replay, registration) else {
            replay.after = replay.through
            client.replays.set(replay)
            remember(.replays(client.name, replay), effects: &effects)
            return 0
        }
        guard fitsInFlightQuota(for: client.peer, first.byteCount) else {
            blockOnQuota(client.peer, effects: &effects)
            return nil
        }
        var batch = Batch(maxBytes: client.peer.flow.bytesLeft)
        if first.carriedBytes < maxBytes {
            var entry: DueQueue.Entry? = first
            while let next = entry {
                batch.append(makeDelivery(of: next, to: client, isRetained: true), next)
                replay.after = next.notification.serial
                entry = client.options.batches ? self.next(of: replay, registration) : nil
                guard let one = entry, one.carriedBytes < maxBytes, batch.takes(one, maxCarried: maxBytes),
                    fitsInFlightQuota(for: client.peer, one.byteCount, behind: batch.byteCount)
                else { break }
            }
            effects.append(
                client.options.batches
                    ? .deliverTogether(client.name, batch.deliveries) : .deliver(batch.deliveries[0]))
        } else {
            replay.after = first.notification.serial
            loseToBus(client, effects: &effects)
        }
        let count = batch.deliveries.count
        client.replays.set(replay)
        countSent(
            count > 0 ? batch.byteCount : Self.signalSize,
            content: count > 0
                ? FlowWindow.NumberedContent(notifications: count) : FlowWindow.NumberedContent(losses: 1),
            to: client.peer,
            effects: &effects)
        for delivery in batch.deliveries {
            beginIntervals(of: client, for: delivery.observers, with: delivery.notification, effects: &effects)
        }
        // Logged after the delivery: a crash between the two repeats the values instead of losing them.
        remember(.replays(client.name, replay), effects: &effects)
        return max(1, count)
    }

    /// The next value of an observer's replay as a queue entry; nil at its end.
    private func next(of replay: RetainedReplay, _ registration: Registration) -> DueQueue.Entry? {
        #if CARILLON_PLANTED
            let now = PlantedFault.strikes(.expiredReplayed) ? 0 : clock.uptime()
        #else
            let now = clock.uptime()
        #endif
        let value = retained.first(matching: registration, after: replay.after, through: replay.through, now: now)
        return value.map { DueQueue.Entry(notification: $0.notification, observers: .one(replay.observer)) }
    }

    // MARK: Invariants

    /// Checks the store, the charges for values, and the replays.
    func checkRetained() throws(BrokenInvariant) {
        try retained.checkInvariants(lastSerial: lastSerial)
        var usage: [ObjectIdentifier: (Peer, Int, Int)] = [:]
        for value in retained.all {
            var row = usage[ObjectIdentifier(value.payer)] ?? (value.payer, 0, 0)
            row.1 += 1
            row.2 += value.byteCount
            usage[ObjectIdentifier(value.payer)] = row
        }
        for (peer, count, bytes) in usage.values {
            try require(
                peer.usage[.retained] == count && peer.usage[.retainedBytes] == bytes,
                "E4: \(peer.name) pays for the values that it posted")
        }
        try require(totals[.retained] == retained.count, "E4: values are paid for")
        for client in clients.values {
            try client.replays.checkInvariants()
            for replay in client.replays.all {
                try require(
                    client.observers[replay.observer] != nil, "R2: a replay belongs to an observer of \(client.name)")
                try require(replay.through <= lastSerial, "D4: no serial is from the future")
            }
        }
    }
}
