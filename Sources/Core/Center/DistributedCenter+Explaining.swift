// SPDX-License-Identifier: Apache-2.0
/// Why a client would get a notification now, later or not at all (B3).
extension DistributedCenter {
    /// What would become of a notification for a client if it were posted now, at once and without options.
    ///
    /// Nothing changes by asking.
    ///
    /// - Parameters:
    ///   - name: empty for whatever each of the client's observers wants.
    ///   - object: empty for none; nothing where `name` is empty.
    /// - Returns: nil when the center does not know the client.
    public func explanation(of client: ClientName, name: String, object: String) -> Explanation? {
        defer { eventEnded() }
        guard let client = clients[client] else { return nil }
        let now = clock.uptime()
        meter.count(2 * client.observers.count)
        let registrations = client.observers.values.map(\.registration)
        let matching = registrations.filter { name.isEmpty || $0.matches(name: name, object: object) }
            .sorted { $0.id < $1.id }
        meter.countSort(of: matching.count)
        func wait(_ registration: Registration) -> Int64? {
            guard registration.options.minimumInterval > 0, !name.isEmpty else { return nil }
            return client.queue.waitForInterval(
                of: NotificationKey(name: name, object: object), for: registration.id, now: now)
        }
        // S3: with one that gets it now, all that want it at all do.
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
        client.queue.forEachDelayed { notification, _ in if isWanted(notification) { waiting.delayed += 1 } }
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
            valuesToCome: client.owed.count, coalesced: client.coalesced, lastLoss: client.lastLoss,
            isLossTold: client.unreportedLoss == nil && client.possibleLoss == nil)
    }
}

/// All that the center knows of why a client gets a notification or not, for others to put into words.
public struct Explanation: Sendable {
    /// What would become of it, for one observer.
    public enum Fate: Hashable, Sendable {
        /// It goes to the client, as soon as its turn comes.
        case sent
        /// It waits until the client reads (A4).
        case waitsForReading
        /// It is kept until the client is resumed; of a behavior that coalesces, in the place of the one before (S1).
        case waitsForResuming
        /// It waits until the minimum interval of the observer is over, unless a newer one takes its place (R5).
        case waitsForInterval(microseconds: Int64)
        /// The client is suspended, and the observer wants nothing then (S1).
        case dropped
    }

    /// An observer that it matches.
    public struct Match: Sendable {
        public let registration: Registration
        public let fate: Fate
        /// Whether something goes first that is for more urgent run-loop modes (M6).
        public let isBehindUrgent: Bool
    }

    /// Notifications of this name and object, or all, that wait for the client.
    public struct Waiting: Hashable, Sendable {
        /// Until it reads, or has its turn.
        public internal(set) var due = 0
        /// Until it is resumed.
        public internal(set) var held = 0
        /// Until intervals are over.
        public internal(set) var delayed = 0
    }

    public let status: ClientStatus
    /// In the order of their numbers.
    public let matches: [Match]
    /// When it was suspended or resumed, as ``Clock/time``; nil when nobody knows.
    public let suspensionTime: Int64?
    public let override: SuspensionOverride?
    public let waiting: Waiting
    /// Posts of this name and object in the queues of their posters, which nobody has got yet (Q7).
    public let queuedPosts: [PostingStyle: Int]
    /// How many of its observers have yet to get values (R2).
    public let valuesToCome: Int
    /// Notifications that waited for it and whose place a newer one took, since it is known to this process.
    public let coalesced: UInt64
    /// Why something was lost that was for it, the last time in this process.
    public let lastLoss: DropReason?
    /// Whether it was told of all that it lost.
    public let isLossTold: Bool
}
