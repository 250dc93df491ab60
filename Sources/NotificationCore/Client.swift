/// What the center knows of one client.
final class Client {
    let name: ClientName
    /// Its registrations and where the index has them.
    var observers: [ObserverID: ObserverIndex<ExactText, ExactText, Observer>.Position] = [:]

    /// Whether the bus was asked to tell when it leaves; not yet for one that an earlier process knew.
    var isWatched = false

    // Policy: suspension (S1).
    /// What the client said; nil when it leaves that to the activity of its application.
    var explicitSuspension: Bool?

    // Safety: flow (A4). The two never mix.
    var flow = FlowWindow()

    var queue = DeliveryQueue()
    /// Whether what is due to it is in the recovery log, because it has to wait; else that is on its way.
    var remembersDue = false
    var counts = ClientCounts()
    /// What was lost and not announced yet.
    var unannounced: Loss?

    /// While a post is matched: this client's observers so far.
    var matched: [Match] = []

    struct Match {
        let observer: ObserverID
        let behavior: SuspensionBehavior
        let lane: DeliveryLane
    }

    struct Loss {
        var count: UInt64
        var observers: Set<ObserverID>
        var reason: DropReason
    }

    init(name: ClientName) {
        self.name = name
    }

    var isSuspended: Bool { explicitSuspension ?? false }

    var suspensionCause: SuspensionCause { explicitSuspension == nil ? .none : .explicit }
}

/// An entry of the index.
struct Observer {
    let registration: Registration
    let client: Client
}

/// Why a client is suspended or not.
public enum SuspensionCause: String, Sendable {
    /// Nothing suspends it.
    case none = "none"
    /// The client said so.
    case explicit = "explicit"
    /// Its application's activity.
    case activity = "activity"
}
