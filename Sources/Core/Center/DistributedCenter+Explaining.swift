// SPDX-License-Identifier: Apache-2.0
/// Explanations for `Explain` and `carillon why`: whether and when a client would get a notification (B3).
extension DistributedCenter {
    /// Explains whether a client would get a notification that is posted now, with the style `now` and without options.
    /// It changes nothing.
    ///
    /// - Parameters:
    ///   - name: the name of the notification; empty for all notifications that the client's observers match.
    ///   - object: the object of the notification; empty for none. Ignored if `name` is empty.
    /// - Returns: nil for an unknown client.
    public func explanation(of client: ClientName, name: String, object: String) -> Explanation? {
        // A query counts as an event too, because the bound on the steps of an event holds for it (E8).
        defer { eventEnded() }
        guard let client = clients[client] else { return nil }
        let now = clock.uptime()
        meter.count(2 * client.observers.count)
        let registrations = client.observers.values.map(\.registration)
        let matching = registrations.filter { name.isEmpty || $0.matches(name: name, object: object) }
            .sorted { $0.id < $1.id }
        meter.countSort(of: matching.count)
        // The time until an observer's minimum interval ends, in microseconds; nil when the notification need not wait.
        func wait(_ registration: Registration) -> Int64? {
            guard registration.options.minimumInterval > 0, !name.isEmpty else { return nil }
            return client.queue.waitForInterval(
                of: NotificationKey(name: name, object: object), for: registration.id, now: now)
        }
        // S3: if one observer gets the notification at once, all observers of the client that would keep it get it at
        // once.
        let isFlushed =
            client.isSuspended && !name.isEmpty
            && matching.contains {
                $0.options.behaviorWhileSuspended == .deliverImmediately && wait($0) == nil
            }
        func fate(_ registration: Registration) -> Explanation.Fate {
            let now: Explanation.Fate = client.reads ? .sent : .waitsForReading
            if client.isSuspended {
                switch registration.options.behaviorWhileSuspended {
                case .drop: return .dropped
                case .coalesce, .hold: return isFlushed ? now : .waitsForResuming
                case .deliverImmediately: break
                }
            }
            return wait(registration).map { .waitsForInterval(microseconds: $0) } ?? now
        }
        var waiting = Explanation.Waiting()
        func isWanted(_ notification: Notification) -> Bool {
            name.isEmpty || notification.has(name: name, object: object)
        }
        (waiting.due, waiting.held) = client.queue.count(where: isWanted)
        client.queue.forEachThrottled { notification, _ in if isWanted(notification) { waiting.throttled += 1 } }
        return Explanation(
            status: ClientStatus(client.peer, client),
            matches: matching.map { registration in
                let lane = DeliveryLane(registration.options.runLoopMode)
                return Explanation.Match(
                    registration: registration, fate: fate(registration),
                    isBehindUrgent: DeliveryLane.allCases.contains { $0 < lane && isReady($0) })
            },
            suspensionTime: client.suspensionTime, override: client.override, waiting: waiting,
            queuedPosts: name.isEmpty ? [:] : postingQueues.counts(name: name, object: object),
            pendingReplays: client.replays.count, coalesced: client.coalesced, lastLoss: client.lastLoss,
            isLossReported: client.unreportedLoss == nil && client.possibleLoss == nil)
    }
}

/// The facts that explain whether and when a client gets a notification. The service and the command make sentences of
/// them.
public struct Explanation: Sendable {
    /// The outcome of a notification for one observer.
    public enum Fate: Hashable, Sendable {
        /// It is sent in the order of the send schedule.
        case sent
        /// It waits in the queue until the client acknowledges earlier messages (A4).
        case waitsForReading
        /// It is held until the client is resumed. For an observer that coalesces, it replaces the previous one of its
        /// key (S1).
        case waitsForResuming
        /// It is throttled until the minimum interval of the observer ends, unless a newer one replaces it (R5).
        case waitsForInterval(microseconds: Int64)
        /// The client is suspended, and the observer drops notifications then (S1).
        case dropped
    }

    /// An observer that the notification matches.
    public struct Match: Sendable {
        public let registration: Registration
        public let fate: Fate
        /// Whether notifications in more urgent lanes wait now, which are sent first (M6).
        public let isBehindUrgent: Bool
    }

    /// The numbers of notifications that wait for the client: of the given name and object, or of all.
    public struct Waiting: Hashable, Sendable {
        /// Due notifications, which wait until the client reads, or until the send schedule reaches their entry.
        public internal(set) var due = 0
        /// Held notifications, which wait until the client is resumed.
        public internal(set) var held = 0
        /// Throttled notifications, which wait for the end of a minimum interval.
        public internal(set) var throttled = 0
    }

    public let status: ClientStatus
    /// The matching observers in the order of their numbers.
    public let matches: [Match]
    /// When the client was last suspended or resumed, as ``Clock/time``; nil when unknown.
    public let suspensionTime: Int64?
    /// The suspension that another program set for the client; nil for none.
    public let override: SuspensionOverride?
    public let waiting: Waiting
    /// The numbers of posts of this name and object in posting queues, which no client has received yet (Q7).
    public let queuedPosts: [PostingStyle: Int]
    /// The number of the client's observers with pending replays of values (R2).
    public let pendingReplays: Int
    /// The number of the client's waiting notifications that a newer one replaced, since this process knows the client.
    public let coalesced: UInt64
    /// The reason of the client's last loss in this process; nil for none.
    public let lastLoss: DropReason?
    /// Whether all losses of the client were reported to it.
    public let isLossReported: Bool
}
