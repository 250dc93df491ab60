// SPDX-License-Identifier: Apache-2.0
/// Notifications that wait for the end of an interval (R5).
///
/// Of a ``NotificationKey`` an observer with a minimum interval gets the first at once, and then at the end of each interval
/// the newest that came meanwhile. An interval begins when a notification goes into the client's queue or, behind one,
/// to the client. What waits is in the log, as it waits for long; it goes straight to the client, not through a lane, as
/// it may be older than what is there, and when all is gone that its observers got before.
///
/// For a client there is at most one timer, and none while nothing waits for it.
extension DistributedCenter {
    /// The observers that get a notification now.
    ///
    /// - Parameter isWanted: by behavior while the client is suspended.
    /// - Returns: nil when all wait.
    func observersNow(
        of receiver: Matches.Receiver, of matches: Matches, for notification: Notification,
        where isWanted: (SuspensionBehavior) -> Bool = { _ in true }, effects: inout [Effect]
    ) -> ObserverList? {
        let client = receiver.client
        guard client.observersWithInterval > 0 else { return matches.observers(of: receiver, where: isWanted) }
        var (now, wishes): ([ObserverID], [IntervalQueue.Wish]) = ([], [])
        meter.count(receiver.count)
        matches.forEach(of: receiver) { match in
            guard isWanted(match.behavior) else { return }
            if match.interval == 0 { now.append(match.observer) } else { wishes.append(Self.wish(match)) }
        }
        guard !wishes.isEmpty else { return now.isEmpty ? nil : ObserverList(now) }
        let time = clock.uptime()
        let (admitted, hasReplaced, needsLess) = changeQueue(of: client) { queue in
            queue.admit(notification, for: wishes, now: time)
        }
        if needsLess { unblock(effects: &effects) }
        if hasReplaced { noteCoalesced(1, of: client) }
        if admitted.count < wishes.count {
            meter.count(2 * wishes.count)
            let waiting = Set(wishes.map(\.observer)).subtracting(admitted).sorted()
            remember(.delayed(client.name, notification, observers: waiting), effects: &effects)
        }
        if client.queue.waitsForIntervals {
            startIntervalTimer(of: client, effects: &effects)
            if !client.reads { findWitness(for: client.peer, effects: &effects) }
            enforceLimits(of: client, effects: &effects)
        }
        now += admitted
        return now.isEmpty ? nil : ObserverList(now.sorted())
    }

    /// Observers get a notification whatever their intervals: those begin. It takes the place of what they waited for.
    func beginIntervals(
        of client: Client, for observers: ObserverList, with notification: Notification, effects: inout [Effect]
    ) {
        guard client.observersWithInterval > 0 else { return }
        let wishes = wishes(of: client, observers.ids)
        guard !wishes.isEmpty else { return }
        let (now, count) = (clock.uptime(), client.queue.countOfIntervals)
        let replaced = changeQueue(of: client) { queue in
            queue.changeIntervals { $0.begin(notification, for: wishes, now: now) }
        }
        guard !replaced.isEmpty else { return }
        noteCoalesced(count - client.queue.countOfIntervals, of: client)
        remember(.delayEnded(client.name, notification.kind, observers: replaced), effects: &effects)
    }

    func wishes(of client: Client, _ observers: [ObserverID]) -> [IntervalQueue.Wish] {
        meter.countSort(of: observers.count)
        return observers.sorted().compactMap { id in
            guard let options = client.observers[id]?.registration.options else { return nil }
            guard options.minimumInterval > 0 else { return nil }
            return IntervalQueue.Wish(
                observer: id, interval: Int64(options.minimumInterval) * 1000,
                isImmediate: options.behaviorWhileSuspended == .deliverImmediately)
        }
    }

    private static func wish(_ match: Matches.Match) -> IntervalQueue.Wish {
        IntervalQueue.Wish(
            observer: match.observer, interval: Int64(match.interval) * 1000,
            isImmediate: match.behavior == .deliverImmediately)
    }

    /// The time of ``Effect/startIntervalTimer(_:milliseconds:)`` is over.
    public func intervalTimerEnded(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        client.intervalTimerEnd = nil
        sendDelayed(to: client, effects: &effects)
        findWitness(for: client.peer, effects: &effects)
    }

    /// Has intervals end early: as the client is suspended from now on, but for observers to which that makes no
    /// difference, or as there is no room to wait.
    func hastenDelayed(to client: Client, isForWantOfRoom: Bool = false, effects: inout [Effect]) {
        guard client.queue.waitsForIntervals else { return }
        changeQueue(of: client) { queue in queue.changeIntervals { $0.flushThrottled(all: isForWantOfRoom) } }
        client.nextLookAtIntervals = 0
        sendDelayed(to: client, effects: &effects)
    }

    /// Sends a client that reads what has waited long enough, as far as there is room.
    func sendDelayed(to client: Client, effects: inout [Effect]) {
        guard client.reads, let end = client.queue.firstIntervalEnd else { return }
        let now = clock.uptime()
        guard max(end, client.nextLookAtIntervals) <= now else {
            return startIntervalTimer(of: client, effects: &effects)
        }
        // Notifications that are due beyond a slice go in the next one, after the turns of others.
        client.nextLookAtIntervals = now + Self.pauseBetweenLooks
        let due = changeQueue(of: client) { $0.dueByInterval(now: now) }
        for one in due {
            let (notification, observers) = (one.notification, one.observers)
            meter.count()
            // S3: what is delivered to one who is suspended comes behind what is held.
            if one.isImmediate, client.isSuspended { flush(client, effects: &effects) }
            // Notifications that could not go in this event are older.
            guard client.reads, client.queue.isEmpty(.flushed), !client.owed.hasReady else { break }
            let isExpired = notification.expiry.map { $0 <= now } ?? false
            let entry = DueQueue.Entry(notification: notification, observers: ObserverList(observers))
            guard isExpired || hasRoomOnTheWay(for: client.peer, entry.byteCount) else {
                changeQueue(of: client) {
                    $0.delayedWithoutRoom = .init(notification, byteCount: entry.byteCount)
                }
                holdBack(client.peer, effects: &effects)
                break
            }
            let kind = notification.kind
            changeQueue(of: client) { queue in
                queue.changeIntervals {
                    if isExpired {
                        $0.forget(kind, for: observers)
                    } else {
                        $0.take(kind, for: observers, now: now)
                    }
                }
            }
            if isExpired { counters.expired += 1 } else { send(entry, to: client, effects: &effects) }
            // Behind it: a crash in between repeats it, and does not lose it.
            remember(.delayEnded(client.name, kind, observers: observers), effects: &effects)
        }
        startIntervalTimer(of: client, effects: &effects)
    }

    /// Microseconds.
    private static let pauseBetweenLooks: Int64 = 1000

    private func send(_ entry: DueQueue.Entry, to client: Client, effects: inout [Effect]) {
        invariant(client.unreportedLoss == nil, "S4: a loss is announced before anything newer is delivered")
        let isCarried = entry.carriedBytes < maxBytes
        if isCarried {
            let delivery = makeDelivery(of: entry, to: client, isDelayed: true)
            effects.append(client.options.batches ? .deliverTogether(client.name, [delivery]) : .deliver(delivery))
        } else {
            loseToBus(client, effects: &effects)
        }
        countSent(
            isCarried ? entry.byteCount : Self.signalSize,
            telling: isCarried ? FlowWindow.Told(notifications: 1) : FlowWindow.Told(losses: 1), to: client.peer,
            effects: &effects)
    }

    /// While the client reads; when it reads again, what waits is looked at anyway.
    private func startIntervalTimer(of client: Client, effects: inout [Effect]) {
        guard client.reads, let first = client.queue.firstIntervalEnd else { return }
        let end = max(first, client.nextLookAtIntervals)
        if let running = client.intervalTimerEnd, running <= end { return }
        client.intervalTimerEnd = end
        let wait = max(0, end - clock.uptime())
        effects.append(
            .startIntervalTimer(client.name, milliseconds: UInt32(clamping: wait / 1000 + (wait % 1000 > 0 ? 1 : 0))))
    }
}
