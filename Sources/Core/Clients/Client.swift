// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The center's state of one client.
final class Client {
    /// The client's connection, which is charged for its resources.
    let peer: Peer
    /// A small number, unique among the present clients.
    let number: Int
    /// The client's observers and their places in the index.
    var observers: [ObserverID: Registered] = [:]

    /// Whether the bus was asked to report the client's departure. For a client of an earlier process that is done when
    /// the restoring ends.
    var isWatched = false
    /// Whether the service is about to end. Due notifications are then left to the next process.
    var isLeftToNext = false
    var presence = Presence.here

    enum Presence {
        case here
        /// The client left the bus; its state is removed slice by slice.
        case leaving
        /// The client left the bus and has no state. It may have scheduled sends left, which send nothing.
        case gone
    }

    var options = ClientOptions()
    /// Whether the bus may have discarded a signal that something the client follows has changed (G4, G5).
    var controlResendPending = false
    /// The observers that policy took from the client (P3), until the client has confirmed that signal.
    var revocation: Revocation?

    // Suspension (S1)
    /// The suspension that another program set for testing (B3). It overrides the client's own choice and activity.
    var override: SuspensionOverride?
    /// The time of the last suspension or resumption, as ``Clock/time``; nil when it was before this process.
    var suspensionTime: Int64?
    /// The client's own choice; nil when it leaves suspension to the activity of its application.
    var explicitSuspension: Bool?
    /// The activity of its application that counts: inactivity counts after it has lasted for 250 ms (A1).
    var activity = Activity.unknown
    /// The activity that a source reported last, and its epoch (S5).
    var reportedActivity = Activity.unknown
    var activityEpoch: UInt64 = 0
    /// The number of its observers with `automatic-suspension` false (A2).
    var refusalsOfAutomation = 0
    /// The number of its observers that monitor (B3).
    var monitors = 0
    /// The number of its observers with a minimum interval (R5).
    var observersWithInterval = 0
    /// The end of the running interval timer, as ``Clock/uptime``; nil when none runs.
    var intervalTimerEnd: Int64?
    /// The next time to look for due throttled notifications, as ``Clock/uptime``.
    var nextLookAtIntervals: Int64 = 0
    /// Whether the configuration allows automatic suspension.
    var isAutomationOn = true
    /// Whether an earlier process left the client suspended by activity, and the restoring has not ended yet (E3).
    var wasSuspendedByActivity = false

    /// The suspension that was announced to the client last; nil when that is unknown.
    var announcedSuspension: (Bool, SuspensionCause)? = (false, .none)
    /// The value of ``sentBytes`` after that announcement.
    var sentBytesWhenAnnounced: UInt64 = 0
    /// Whether the log records that a later process has to announce the suspension again (E3), because the client may
    /// not know it.
    var suspensionNoticePending = false

    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var queue: DeliveryQueue
    /// The retained values that its observers have yet to get, in the order of their requests (R2).
    var replays = RetainedReplays()
    /// The progress of the client while its queue is half full and it reads; nil otherwise.
    var backpressure: Backpressure?
    /// Whether the client stopped reading while its queue was half full, and has confirmed nothing since.
    var isSlowConsumer = false
    /// Whether its due notifications are in the recovery log, because they have to wait. Otherwise they are about to be
    /// sent.
    var remembersDue = false
    var counts = ClientCounts()
    /// The counts that an earlier process left, until all of its state has been restored.
    var restoredCounts: ClientCounts?
    /// The number of waiting notifications that a newer one replaced, since this process knows the client.
    var coalesced: UInt64 = 0
    /// The reason of the last loss.
    var lastLoss: DropReason?
    /// The loss that was not announced yet.
    var unreportedLoss: Loss?
    /// Whether the client has lost posts in the present event. The loss is announced at the end of the event.
    var hasLostPosts = false
    /// Messages that the bus may have lost, and whose loss was not announced yet.
    var possibleLoss: PossibleLoss?

    struct Loss {
        var count: UInt64
        var observers: ObserverSet
        var reason: DropReason
    }

    struct Revocation {
        /// The observers whose removal the client may not know, and of these the observers still to be announced.
        var observers: Set<ObserverID> = []
        var unannounced: Set<ObserverID> = []
        /// The value of ``sentBytes`` after the last announcement.
        var sentBytesWhenAnnounced: UInt64 = 0
    }

    struct Backpressure {
        /// The bytes that the client had confirmed at the last check.
        var confirmed: UInt64
        /// The notifications that had been delivered to the client by the last check.
        var delivered: UInt64
        /// The number of consecutive checks without newly confirmed bytes.
        var idleChecks = 0
    }

    struct PossibleLoss {
        var count: UInt64
        var reason: DropReason
    }

    init(_ peer: Peer, number: Int, isAutomationOn: Bool, meter: StepMeter) {
        self.peer = peer
        queue = DeliveryQueue(meter: meter)
        self.number = number
        self.isAutomationOn = isAutomationOn
    }

    /// The counts as the client knows them: all deliveries, and the announced losses.
    var announcedCounts: ClientCounts {
        var counts = counts
        counts.dropped -= unreportedLoss?.count ?? 0
        return counts
    }

    /// Whether the service would send the client something if it read.
    var awaitsSomething: Bool {
        queue.hasDue || replays.hasReady || queue.waitsForIntervals || unreportedLoss != nil || possibleLoss != nil
            || controlResendPending
            || !knowsSuspension || isRevocationPending
    }

    /// Whether the present suspension was announced to the client.
    var knowsSuspension: Bool { announcedSuspension.map { $0 == (isSuspended, suspensionCause) } ?? false }

    /// Whether the last announcement of its suspension is not confirmed, and may be lost.
    var isSuspensionUnacked: Bool { sentBytesWhenAnnounced > peer.surelyConfirmedBytes }

    /// Whether observers that policy took from the client have yet to be announced.
    var isRevocationPending: Bool { revocation?.unannounced.isEmpty == false }

    /// Records observers that policy took from the client, to be announced.
    func addRevocation(of ids: Set<ObserverID>) {
        revocation = revocation ?? Revocation()
        revocation?.observers.formUnion(ids)
        revocation?.unannounced.formUnion(ids)
    }

    /// All bytes sent to the client so far, without the replies beside its channel.
    var sentBytes: UInt64 {
        peer.confirmedBytes
            + UInt64(peer.usage[.inFlightBytes] - (peer.replies?.flow.unconfirmed.bytes ?? 0))
    }

    var name: ClientName { peer.name }

    /// Whether the client may be sent messages: its window is open, it is restored and identified, and the service is
    /// not about to end. A client of an earlier process gets nothing before the restoring has ended; then the
    /// announcement of its losses comes first.
    var reads: Bool { isWatched && presence == .here && !isLeftToNext && !peer.awaitsIdentity && peer.flow.isOpen }

    var isSuspended: Bool {
        #if CARILLON_PLANTED
            if override == nil, decidingActivity == .inactive, PlantedFault.strikes(.activityOverWord) { return true }
        #endif
        return override?.isSuspended ?? explicitSuspension ?? (decidingActivity == .inactive)
    }

    var isSuspendedByActivity: Bool {
        override == nil && explicitSuspension == nil && decidingActivity == .inactive
    }

    var suspensionCause: SuspensionCause {
        if override != nil { return .override }
        if explicitSuspension != nil { return .explicit }
        return decidingActivity == .unknown ? .none : .activity
    }

    /// The activity, if it may decide about suspension at all (A2).
    private var decidingActivity: Activity {
        isAutomationOn && refusalsOfAutomation == 0 ? activity : .unknown
    }
}

/// An entry of the index: the properties of an observer that a match needs. A match may visit a quarter of a million
/// entries in a row, so an entry is small; ``Registered`` has the rest.
struct Observer {
    let client: Client
    let id: ObserverID
    /// In milliseconds; 0 for none.
    let interval: UInt32
    let behavior: SuspensionBehavior
    let lane: DeliveryLane
    let isMonitor: Bool

    init(_ registration: Registration, of client: Client) {
        self.client = client
        id = registration.id
        interval = registration.options.minimumInterval
        behavior = registration.options.behaviorWhileSuspended
        lane = DeliveryLane(registration.options.runLoopMode)
        isMonitor = registration.options.isMonitor
    }
}

/// An observer of a client, with its place in the index.
struct Registered {
    let registration: Registration
    var position: ObserverIndex<ExactText, ExactText, Observer>.Position
}
