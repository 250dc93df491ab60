// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// What the center knows of one client.
final class Client {
    /// Its connection, which pays for what it uses.
    let peer: Peer
    /// A small number that no other client has while this one is there.
    let number: Int
    /// Its registrations and where the index has them.
    var observers: [ObserverID: Registered] = [:]

    /// Whether the bus was asked to tell when it leaves; not yet for one that an earlier process knew.
    var isWatched = false
    /// Whether the service is about to end: what is due is left to the next process, which tells what it sends.
    var isLeftToNext = false
    var presence = Presence.here

    enum Presence {
        case here
        /// It left the bus, and what it had goes part by part.
        case leaving
        /// It left the bus, and has nothing. It may have turns left, which are void.
        case gone
    }

    var options = ClientOptions()
    /// Whether the bus may have refused to carry to it that something it follows is different.
    var controlResendPending = false
    /// What policy took from it (P3), as long as it may not know.
    var revocation: Revocation?

    // Policy: suspension (S1).
    /// What somebody else said, to test its application (B3): it holds whatever the client says, and activity.
    var override: SuspensionOverride?
    /// When it was suspended or resumed, as ``Clock/time``; nil when that was before this process.
    var suspensionTime: Int64?
    /// What the client said; nil when it leaves that to the activity of its application.
    var explicitSuspension: Bool?
    /// Whether its application is active, as it counts: inactivity has lasted for a moment (A1).
    var activity = Activity.unknown
    /// The same, as it was told last, in which epoch (S5).
    var reportedActivity = Activity.unknown
    var activityEpoch: UInt64 = 0
    /// How many of its observers were registered with `automatic-suspension` false (A2).
    var refusalsOfAutomation = 0
    /// How many of its observers monitor (B3).
    var monitors = 0
    /// How many of its observers have a minimum interval (R5).
    var observersWithInterval = 0
    /// When the timer for that ends, as ``Clock/uptime``; nil when none runs.
    var intervalTimerEnd: Int64?
    /// Before this what is due of what waits for intervals is not looked at again.
    var nextLookAtIntervals: Int64 = 0
    /// The configuration's word about automatic suspension.
    var isAutomationOn = true
    /// Whether an earlier process left it suspended because of activity, which nobody has told yet in this one (E3).
    var wasSuspendedByActivity = false

    /// What it was told last about its suspension; nil when that is not known.
    var toldSuspension: (Bool, SuspensionCause)? = (false, .none)
    /// All that it had been sent, in bytes, when it was told so.
    var sentWhenTold: UInt64 = 0
    /// Whether a later process is known to have to tell it about its suspension (E3), as it may not know.
    var suspensionNoticePending = false

    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var queue: DeliveryQueue
    /// What its observers have yet to get of values, in the order in which they asked (R2).
    var owed = RetainedReplays()
    /// Set while its queue is half full and it reads.
    var backpressure: Backpressure?
    /// Whether it had stopped reading when its queue was half full, and has not begun again.
    var isSlowConsumer = false
    /// Whether what is due to it is in the recovery log, because it has to wait; else that is on its way.
    var remembersDue = false
    var counts = ClientCounts()
    /// What an earlier process left, until all that it remembered has been taken over.
    var restoredCounts: ClientCounts?
    /// Notifications that waited for it and whose place a newer one took, since this process knows it.
    var coalesced: UInt64 = 0
    /// Why something was lost, the last time.
    var lastLoss: DropReason?
    /// What was lost and not announced yet.
    var unreportedLoss: Loss?
    /// Whether it has lost something in the event that is under way, of which it is told at the end.
    var hasLostPosts = false
    /// What was sent and perhaps not carried by the bus, and not announced yet.
    var possibleLoss: PossibleLoss?

    struct Loss {
        var count: UInt64
        var observers: ObserverSet
        var reason: DropReason
    }

    struct Revocation {
        /// All of which it may not know, and those of them that it has to be told.
        var observers: Set<ObserverID> = []
        var untold: Set<ObserverID> = []
        /// All that it had been sent, in bytes, when it was told last.
        var sentWhenTold: UInt64 = 0
    }

    struct Backpressure {
        /// Bytes that it had confirmed when it was looked at last.
        var confirmed: UInt64
        /// Notifications that it had been sent by then.
        var delivered: UInt64
        /// How often nothing was new.
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

    /// The counts of all that it was sent so far: of its losses, those that it was told of.
    var toldCounts: ClientCounts {
        var counts = counts
        counts.dropped -= unreportedLoss?.count ?? 0
        return counts
    }

    /// Whether something is for it that it would get if it read.
    var awaitsSomething: Bool {
        queue.hasDue || owed.hasReady || queue.waitsForIntervals || unreportedLoss != nil || possibleLoss != nil
            || controlResendPending
            || !knowsSuspension || isRevocationOwed
    }

    /// Whether it was told what holds about its suspension.
    var knowsSuspension: Bool { toldSuspension.map { $0 == (isSuspended, suspensionCause) } ?? false }

    /// Whether what it was told last about that may not have arrived.
    var isSuspensionOnTheWay: Bool { sentWhenTold > peer.surelyConfirmedBytes }

    /// Whether it has to be told what policy took from it.
    var isRevocationOwed: Bool { revocation?.untold.isEmpty == false }

    /// Policy took these from it, of which it has to be told.
    func oweRevocation(of ids: Set<ObserverID>) {
        revocation = revocation ?? Revocation()
        revocation?.observers.formUnion(ids)
        revocation?.untold.formUnion(ids)
    }

    /// All that it was sent so far, in bytes, without replies beside its channel.
    var sentBytes: UInt64 {
        peer.confirmedBytes
            + UInt64(peer.usage[.inFlightBytes] - (peer.replies?.flow.unconfirmed.bytes ?? 0))
    }

    var name: ClientName { peer.name }

    /// Whether it may be sent something: what it was sent, it has confirmed so far. One that an earlier process knew gets
    /// nothing before the restoring has ended: first of all what it missed.
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

    /// What is known, where it may decide at all (A2).
    private var decidingActivity: Activity {
        isAutomationOn && refusalsOfAutomation == 0 ? activity : .unknown
    }
}

/// An entry of the index: what has to be known of an observer that a notification matches. There may be a quarter of a
/// million in a row, so it is small, and the rest is apart.
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

/// An observer of a client.
struct Registered {
    let registration: Registration
    var position: ObserverIndex<ExactText, ExactText, Observer>.Position
}
