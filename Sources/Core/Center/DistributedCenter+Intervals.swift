// SPDX-License-Identifier: Apache-2.0
/// Minimum intervals of observers, and the throttled notifications that wait for their ends (R5).
///
/// For each ``NotificationKey``, an observer with a minimum interval gets the first notification at once, and at the
/// end of each interval the newest one of that time. An interval begins when a notification enters the client's queue,
/// or when a throttled one is sent.
///
/// Throttled notifications are logged, as they may wait for long. They are sent without a lane, when all notifications
/// that their observers should get before have been sent.
///
/// A client has at most one timer, which the driver runs, and none without throttled notifications.
extension DistributedCenter {
    /// Returns the observers of a client that get a notification now. For the others the notification is throttled.
    ///
    /// - Parameters:
    ///   - receiver: the client with its matching observers.
    ///   - isWanted: selects observers by their behavior while the client is suspended.
    /// - Returns: nil when no observer gets it now.
    func observersNow(
        of receiver: Matches.Receiver, of matches: Matches, for notification: Notification,
        where isWanted: (SuspensionBehavior) -> Bool = { _ in true }, effects: inout [Effect]
    ) -> ObserverList? {
        let client = receiver.client
        guard client.observersWithInterval > 0 else { return matches.observers(of: receiver, where: isWanted) }
        var (now, intervalObservers): ([ObserverID], [IntervalQueue.IntervalObserver]) = ([], [])
        meter.count(receiver.count)
        matches.forEach(of: receiver) { match in
            guard isWanted(match.behavior) else { return }
            if match.interval == 0 {
                now.append(match.observer)
            } else {
                intervalObservers.append(Self.intervalObserver(match))
            }
        }
        guard !intervalObservers.isEmpty else { return now.isEmpty ? nil : ObserverList(now) }
        let time = clock.uptime()
        let (admitted, hasReplaced, isBlockedSizeReduced) = changeQueue(of: client) { queue in
            queue.admit(notification, for: intervalObservers, now: time)
        }
        // The new notification is smaller than the replaced one, which was blocked on the in-flight quota, and may fit.
        if isBlockedSizeReduced { unblock(effects: &effects) }
        if hasReplaced { noteCoalesced(1, of: client) }
        if admitted.count < intervalObservers.count {
            meter.count(2 * intervalObservers.count)
            let waiting = Set(intervalObservers.map(\.observer)).subtracting(admitted).sorted()
            remember(.throttled(client.name, notification, observers: waiting), effects: &effects)
        }
        if client.queue.waitsForIntervals {
            startIntervalTimer(of: client, effects: &effects)
            if !client.reads { probeBacklogIfNeeded(for: client.peer, effects: &effects) }
            enforceLimits(of: client, effects: &effects)
        }
        now += admitted
        return now.isEmpty ? nil : ObserverList(now.sorted())
    }

    /// Begins the intervals of observers that get a notification without a wait, such as a retained value. It replaces
    /// their throttled notifications of the same key.
    func beginIntervals(
        of client: Client, for observers: ObserverList, with notification: Notification, effects: inout [Effect]
    ) {
        guard client.observersWithInterval > 0 else { return }
        let intervalObservers = intervalObservers(of: client, observers.ids)
        guard !intervalObservers.isEmpty else { return }
        let (now, count) = (clock.uptime(), client.queue.countOfIntervals)
        let replaced = changeQueue(of: client) { queue in
            queue.changeIntervals { $0.begin(notification, for: intervalObservers, now: now) }
        }
        guard !replaced.isEmpty else { return }
        noteCoalesced(count - client.queue.countOfIntervals, of: client)
        remember(.throttleEnded(client.name, notification.key, observers: replaced), effects: &effects)
    }

    /// Ends the waits of a suspended client's observers that do not get notifications at once, before a notification is
    /// throttled for those that do.
    ///
    /// All observers that wait for one key share its newest notification. Without this step an observer would get a
    /// notification from here that is held for it, or dropped, because of the suspension (S1).
    func endThrottling(
        of client: Client, for notification: Notification, matched receiver: Matches.Receiver, in matches: Matches,
        effects: inout [Effect]
    ) {
        guard client.queue.waitsForIntervals,
            let others = matches.observers(of: receiver, where: { $0 != .deliverImmediately })
        else { return }
        // Without an immediate observer that has an interval, the notification does not come into the queue of intervals.
        var isThrottled = false
        matches.forEach(of: receiver) { match in
            if match.behavior == .deliverImmediately, match.interval > 0 { isThrottled = true }
        }
        guard isThrottled else { return }
        let (count, blocked) = (client.queue.countOfIntervals, client.queue.throttledOnQuota)
        let waited = changeQueue(of: client) { queue in
            queue.changeIntervals { $0.forget(notification.key, for: others.ids) }
        }
        // A notification that still waits may still be the one that is blocked on the in-flight quota.
        if client.queue.countOfIntervals == count { client.queue.throttledOnQuota = blocked }
        guard !waited.isEmpty else { return }
        noteCoalesced(count - client.queue.countOfIntervals, of: client)
        remember(.throttleEnded(client.name, notification.key, observers: waited), effects: &effects)
    }

    /// Returns those of the observers that have a minimum interval, with it, in the order of their numbers.
    func intervalObservers(of client: Client, _ observers: [ObserverID]) -> [IntervalQueue.IntervalObserver] {
        meter.countSort(of: observers.count)
        return observers.sorted().compactMap { id in
            guard let options = client.observers[id]?.registration.options else { return nil }
            guard options.minimumInterval > 0 else { return nil }
            return IntervalQueue.IntervalObserver(
                observer: id, interval: Int64(options.minimumInterval) * 1000,
                isImmediate: options.behaviorWhileSuspended == .deliverImmediately)
        }
    }

    /// Returns a matching observer with its minimum interval.
    private static func intervalObserver(_ match: Matches.Match) -> IntervalQueue.IntervalObserver {
        IntervalQueue.IntervalObserver(
            observer: match.observer, interval: Int64(match.interval) * 1000,
            isImmediate: match.behavior == .deliverImmediately)
    }

    /// Handles the end of ``Effect/startIntervalTimer(_:milliseconds:)``: sends the throttled notifications that are
    /// due.
    public func intervalTimerEnded(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        client.intervalTimerEnd = nil
        sendThrottled(to: client, effects: &effects)
        probeBacklogIfNeeded(for: client.peer, effects: &effects)
    }

    /// Ends intervals early and sends the throttled notifications. Called in two cases:
    ///
    /// - The client is suspended. Exception: observers that deliver immediately keep their intervals.
    /// - The client's queue is full (`isQueueFull`). Then all intervals end.
    func flushThrottled(to client: Client, isQueueFull: Bool = false, effects: inout [Effect]) {
        guard client.queue.waitsForIntervals else { return }
        changeQueue(of: client) { queue in queue.changeIntervals { $0.flushThrottled(all: isQueueFull) } }
        client.nextIntervalCheck = 0
        sendThrottled(to: client, effects: &effects)
    }

    /// Sends a client that reads the throttled notifications whose intervals have ended, as far as the in-flight quota
    /// allows. One call sends a slice of them, and starts the timer for the others.
    func sendThrottled(to client: Client, effects: inout [Effect]) {
        guard client.reads, let end = client.queue.firstIntervalEnd else { return }
        let now = clock.uptime()
        guard max(end, client.nextIntervalCheck) <= now else {
            return startIntervalTimer(of: client, effects: &effects)
        }
        // The next slice follows after a pause, so that other clients are served meanwhile.
        client.nextIntervalCheck = now + Self.pauseBetweenSlices
        let due = changeQueue(of: client) { $0.dueByInterval(now: now) }
        for one in due {
            let (notification, observers) = (one.notification, one.observers)
            meter.count()
            // S3: a delivery to a suspended client comes after its held notifications.
            if one.isImmediate, client.isSuspended { flush(client, effects: &effects) }
            // Flushed notifications and replayed values that still wait are older, so they go first.
            guard client.reads, client.queue.isEmpty(.flushed), !client.replays.hasReady else { break }
            let isExpired = notification.expiry.map { $0 <= now } ?? false
            let entry = DueQueue.Entry(notification: notification, observers: ObserverList(observers))
            guard isExpired || fitsInFlightQuota(for: client.peer, entry.byteCount) else {
                // Its size decides when ``unblock(effects:)`` tries the client again.
                changeQueue(of: client) {
                    $0.throttledOnQuota = .init(notification, byteCount: entry.byteCount)
                }
                blockOnQuota(client.peer, effects: &effects)
                break
            }
            let key = notification.key
            changeQueue(of: client) { queue in
                queue.changeIntervals {
                    if isExpired {
                        $0.forget(key, for: observers)
                    } else {
                        $0.take(key, for: observers, now: now)
                    }
                }
            }
            if isExpired { counters.expired += 1 } else { send(entry, to: client, effects: &effects) }
            // Logged after the delivery: a crash between the two repeats it instead of losing it.
            remember(.throttleEnded(client.name, key, observers: observers), effects: &effects)
        }
        startIntervalTimer(of: client, effects: &effects)
    }

    /// The pause between two slices, in microseconds.
    private static let pauseBetweenSlices: Int64 = 1000

    /// Sends a throttled notification that has left the interval queue.
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
            content: isCarried ? FlowWindow.NumberedContent(notifications: 1) : FlowWindow.NumberedContent(losses: 1),
            to: client.peer,
            effects: &effects)
    }

    /// Starts the timer of a client that reads, unless an earlier one runs. A client that does not read needs none:
    /// when it reads again, its throttled notifications are examined in any case.
    private func startIntervalTimer(of client: Client, effects: inout [Effect]) {
        guard client.reads, let first = client.queue.firstIntervalEnd else { return }
        let end = max(first, client.nextIntervalCheck)
        if let running = client.intervalTimerEnd, running <= end { return }
        client.intervalTimerEnd = end
        let wait = max(0, end - clock.uptime())
        effects.append(
            .startIntervalTimer(client.name, milliseconds: UInt32(clamping: wait / 1000 + (wait % 1000 > 0 ? 1 : 0))))
    }
}
