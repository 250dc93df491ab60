// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The center's state of one client: a connection with observers, options, queued notifications or followed lists.
/// ``DistributedCenter`` creates it at the first such call, and removes it when the connection leaves the bus. The
/// state of flow control and accounting is in its ``Peer``.
///
/// In these comments a client **reads** while it may be sent messages (``reads``). To **announce** is to send the
/// client a control signal. A **restored** client comes from the recovery log of an earlier process of the service.
final class Client {
    /// The client's connection, which is charged for its resources.
    let peer: Peer
    /// A small number, unique among the present clients, for tables that are arrays. It is reused after the client has
    /// left.
    let number: Int
    /// The registrations of the client.
    var observers: [ObserverID: RegisteredObserver] = [:]

    /// Whether the driver was asked to report when the client leaves the bus. A restored client is not watched before
    /// the restoring ends.
    var isWatched = false
    /// Whether the service is about to end and leaves due notifications to the next process. The client is sent nothing
    /// more.
    var isHandedOver = false
    /// Whether the client is on the bus.
    var presence = Presence.here

    enum Presence {
        case here
        /// The client left the bus; its state is removed slice by slice.
        case leaving
        /// The client left the bus and has no state. The send schedule may still refer to it, and then sends nothing.
        case gone
    }

    /// The options that the client has set.
    var options = ClientOptions()
    /// Whether the bus may have discarded a control signal about a list that the client follows: the wanted names (G4)
    /// or the retained values (G5). The signal is sent again when the client reads.
    var controlResendPending = false
    /// The observers that policy took from the client (P3). It is nil when there are none, and once the client has
    /// acknowledged the control signal about them.
    var revocation: Revocation?

    // Suspension (S1)
    /// The suspension that another program has set, to test the client's application (B3). It overrides the client's
    /// own choice and activity.
    var override: SuspensionOverride?
    /// The time of the last suspension or resumption, as ``Clock/time``. It is nil when that was before this process,
    /// or never.
    var suspensionTime: Int64?
    /// The client's own choice. It is nil when the activity of its application decides.
    var explicitSuspension: Bool?
    /// The activity that decides about suspension. A change to inactive counts after 250 ms (A1).
    var activity = Activity.unknown
    /// The last reported activity.
    var reportedActivity = Activity.unknown
    /// The number of the last report of activity. A delay that belongs to an earlier report is ignored (S5).
    var activityEpoch: UInt64 = 0
    /// The number of its observers with `automatic-suspension` false. While there are any, activity does not suspend
    /// the client (A2).
    var refusalsOfAutomation = 0
    /// The number of its observers that are monitors: they get copies of posts and do not count as receivers (B3).
    var monitors = 0
    /// The number of its observers with a minimum interval (R5).
    var observersWithInterval = 0
    /// The end of the running interval timer, as ``Clock/uptime``; nil when none runs.
    var intervalTimerEnd: Int64?
    /// The earliest time of the next check for due throttled notifications, as ``Clock/uptime``.
    var nextIntervalCheck: Int64 = 0
    /// Whether the configuration allows that activity suspends clients.
    var isAutomationOn = true
    /// Whether activity had suspended the restored client in the earlier process. It is false once the restoring has
    /// ended (E3).
    var wasSuspendedByActivity = false

    /// The state of suspension that was announced last. It is nil when the announcement may be lost.
    var announcedSuspension: (Bool, SuspensionCause)? = (false, .none)
    /// The value of ``sentBytes`` after that announcement. Once so many bytes are acknowledged, the client has it.
    var sentBytesWhenAnnounced: UInt64 = 0
    /// Whether the recovery log states that the next process must announce the suspension. That is the case until the
    /// client has acknowledged the present state (E3).
    var suspensionNoticePending = false

    /// The notifications that wait for the client.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var queue: DeliveryQueue
    /// The cursors over the retained values that its new observers are to get, in the order of their requests (R2).
    var replays = RetainedReplays()
    /// The progress of the client at the last check of backpressure; nil unless posts are delayed for the client. The
    /// delay begins when the queue is half full. It ends when the queue is below three eighths, or with
    /// ``isSlowConsumer``.
    var backpressure: Backpressure?
    /// Whether the client has acknowledged nothing for a second while its queue was half full. Posts are not delayed
    /// for it. It ends at the next acknowledgment.
    var isSlowConsumer = false
    /// Whether its due notifications are in the recovery log. They are not logged while they are about to be sent.
    var isDueLogged = false
    /// The numbers of its delivered and lost notifications.
    var counts = ClientCounts()
    /// The counts in the recovery log of an earlier process. It is nil once all state has been restored.
    var restoredCounts: ClientCounts?
    /// The number of its waiting notifications that a newer one has replaced, in this process.
    var coalesced: UInt64 = 0
    /// The reason of the last loss.
    var lastLoss: DropReason?
    /// The counted losses that no `Dropped` signal has reported yet.
    var unreportedLoss: Loss?
    /// Whether posts for the client were discarded in the present event. The loss is reported at the end of the event.
    var hasLostPosts = false
    /// Sent notifications that the bus may have lost, and that no `Dropped` signal has reported yet.
    var possibleLoss: PossibleLoss?

    /// Counted losses that a `Dropped` signal is to report. They take sequence numbers when it is sent.
    struct Loss {
        var count: UInt64
        /// The observers that miss any of them.
        var observers: ObserverSet
        /// The reason of the first of them, or of a restart that has added to them.
        var reason: DropReason
    }

    /// Observers that policy took from the client.
    struct Revocation {
        /// The observers whose removal the client has not acknowledged.
        var observers: Set<ObserverID> = []
        /// The part of ``observers`` whose removal is still to be announced.
        var unannounced: Set<ObserverID> = []
        /// The value of ``sentBytes`` after the last announcement.
        var sentBytesWhenAnnounced: UInt64 = 0
    }

    /// The progress of a client, by which ``DistributedCenter/checkBackpressure()`` finds out whether it reads.
    struct Backpressure {
        /// The bytes that the client had acknowledged at the last check.
        var confirmed: UInt64
        /// The number of notifications that had been sent to the client at the last check.
        var delivered: UInt64
        /// The number of consecutive checks without an acknowledgment. There are about 100 checks in a second.
        var idleChecks = 0
    }

    /// Notifications that had sequence numbers, and may be lost.
    struct PossibleLoss {
        /// An upper bound of their number.
        var count: UInt64
        var reason: DropReason
    }

    init(_ peer: Peer, number: Int, isAutomationOn: Bool, meter: StepMeter) {
        self.peer = peer
        queue = DeliveryQueue(meter: meter)
        self.number = number
        self.isAutomationOn = isAutomationOn
    }

    /// The counts that the client can know: all deliveries, and the reported losses.
    var announcedCounts: ClientCounts {
        var counts = counts
        counts.dropped -= unreportedLoss?.count ?? 0
        return counts
    }

    /// Whether the service has something to send as soon as the client reads: notifications, replays, reports of losses
    /// or control signals. Throttled notifications count, although their intervals may still run.
    var hasPendingMessages: Bool {
        queue.hasDue || replays.hasReady || queue.waitsForIntervals || unreportedLoss != nil || possibleLoss != nil
            || controlResendPending
            || !isSuspensionAnnounced || isRevocationPending
    }

    /// Whether the present suspension was announced to the client.
    var isSuspensionAnnounced: Bool { announcedSuspension.map { $0 == (isSuspended, suspensionCause) } ?? false }

    /// Whether the last announcement of its suspension is not acknowledged, and may be lost.
    var isSuspensionUnacked: Bool { sentBytesWhenAnnounced > peer.surelyConfirmedBytes }

    /// Whether a removal of observers by policy is still to be announced.
    var isRevocationPending: Bool { revocation?.unannounced.isEmpty == false }

    /// Records observers that policy took from the client, to be announced.
    func addRevocation(of ids: Set<ObserverID>) {
        revocation = revocation ?? Revocation()
        revocation?.observers.formUnion(ids)
        revocation?.unannounced.formUnion(ids)
    }

    /// All bytes sent to the client, acknowledged or in flight. Replies that go on the bus beside a channel do not
    /// count.
    var sentBytes: UInt64 {
        peer.confirmedBytes
            + UInt64(peer.usage[.inFlightBytes] - (peer.replies?.flow.unconfirmed.bytes ?? 0))
    }

    var name: ClientName { peer.name }

    /// Whether the client may be sent messages. All of these must hold:
    ///
    /// - It is on the bus, and the restoring of its state has ended.
    /// - Its process is identified, if it is a restored client under a policy.
    /// - Its window and the in-flight quota have space.
    /// - The service is not about to end.
    var reads: Bool { isWatched && presence == .here && !isHandedOver && !peer.awaitsIdentity && peer.flow.isOpen }

    /// Whether the client is suspended. An override decides before the client's own choice, and that before activity.
    var isSuspended: Bool {
        #if CARILLON_PLANTED
            // Injects a fault, in builds that test whether the simulation finds it (E7).
            if override == nil, decidingActivity == .inactive, PlantedFault.strikes(.activityOverridesClient) {
                return true
            }
        #endif
        return override?.isSuspended ?? explicitSuspension ?? (decidingActivity == .inactive)
    }

    /// Whether the client is suspended, and for no other reason than inactivity.
    var isSuspendedByActivity: Bool {
        override == nil && explicitSuspension == nil && decidingActivity == .inactive
    }

    /// The reason of the present state: of a suspension, or of its absence.
    var suspensionCause: SuspensionCause {
        if override != nil { return .override }
        if explicitSuspension != nil { return .explicit }
        return decidingActivity == .unknown ? .none : .activity
    }

    /// The activity if it may decide about suspension (A2); otherwise ``Activity/unknown``.
    private var decidingActivity: Activity {
        isAutomationOn && refusalsOfAutomation == 0 ? activity : .unknown
    }
}

/// An entry of ``DistributedCenter/index``: the properties of an observer that matching a post needs. It is small,
/// because a post may match a quarter of a million observers in a row. ``RegisteredObserver`` has the full
/// registration.
struct Observer {
    let client: Client
    let id: ObserverID
    /// The minimum interval between two notifications of one key, in milliseconds; 0 for none.
    let interval: UInt32
    /// The treatment of notifications while the client is suspended.
    let behavior: SuspensionBehavior
    /// The lane of the observer's run-loop mode.
    let lane: DeliveryLane
    /// Whether the observer gets copies of posts and does not count as a receiver (B3).
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

/// A registration of a client, with the position of its ``Observer`` in ``DistributedCenter/index``.
struct RegisteredObserver {
    let registration: Registration
    var position: ObserverIndex<ExactText, ExactText, Observer>.Position
}
