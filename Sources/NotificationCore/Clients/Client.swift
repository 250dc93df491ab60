import Collections

/// What the center knows of one client.
final class Client {
    let name: ClientName
    /// A small number that no other client has while this one is there.
    let place: Int
    /// Its registrations and where the index has them.
    var observers: [ObserverID: ObserverIndex<ExactText, ExactText, Observer>.Position] = [:]

    /// Whether the bus was asked to tell when it leaves; not yet for one that an earlier process knew.
    var isWatched = false
    /// Whether it left the bus. It may have turns left, which are void.
    var isGone = false

    // Policy: suspension (S1).
    /// What the client said; nil when it leaves that to the activity of its application.
    var explicitSuspension: Bool?
    /// Whether its application is active, as it counts: inactivity has lasted for a moment (A1).
    var activity = Activity.unknown
    /// The same, as it was told last, in which epoch (S5).
    var reportedActivity = Activity.unknown
    var activityEpoch: UInt64 = 0
    /// How many of its observers were registered with `automatic-suspension` false (A2).
    var refusalsOfAutomation = 0
    /// The configuration's word about automatic suspension.
    var isAutomationOn = true
    /// Whether an earlier process left it suspended because of activity, which nobody has told yet in this one (E3).
    var wasSuspendedByActivity = false

    // Safety: flow (A4). The two never mix.
    var flow = FlowWindow()

    var queue = DeliveryQueue()
    /// Whether what is due to it is in the recovery log, because it has to wait; else that is on its way.
    var remembersDue = false
    var counts = ClientCounts()
    /// What an earlier process left, until all that it remembered has been taken over.
    var restoredCounts: ClientCounts?
    /// What was lost and not announced yet.
    var unannounced: Loss?

    struct Loss {
        var count: UInt64
        var observers: Set<ObserverID>
        var reason: DropReason
    }

    init(name: ClientName, place: Int, isAutomationOn: Bool) {
        self.name = name
        self.place = place
        self.isAutomationOn = isAutomationOn
    }

    /// Whether it may be sent something: what it was sent, it has confirmed so far. One that an earlier process knew gets
    /// nothing before the restoring has ended: first of all what it missed.
    var reads: Bool { isWatched && !isGone && flow.isOpen }

    var isSuspended: Bool { explicitSuspension ?? (decidingActivity == .inactive) }

    var isSuspendedByActivity: Bool { explicitSuspension == nil && decidingActivity == .inactive }

    var suspensionCause: SuspensionCause {
        if explicitSuspension != nil { return .explicit }
        return decidingActivity == .unknown ? .none : .activity
    }

    /// What is known, where it may decide at all (A2).
    private var decidingActivity: Activity {
        isAutomationOn && refusalsOfAutomation == 0 ? activity : .unknown
    }
}

/// An entry of the index.
struct Observer {
    let registration: Registration
    let client: Client
}
