/// What the center wants done. It has decided already; whoever drives it carries effects out in their order.
public enum Effect {
    /// Send the client a notification.
    case deliver(Delivery)
    /// Tell the client that it lost notifications, before it gets a newer one (S4).
    ///
    /// - Parameter sequence: the client's count of notifications with the lost ones.
    case dropped(ClientName, count: UInt64, observers: [ObserverID], reason: DropReason, sequence: UInt64)
    /// Tell the client that it is suspended or resumed.
    case suspensionChanged(ClientName, isSuspended: Bool, cause: SuspensionCause)
    /// Ask the client for an answer, and report that with ``DistributedCenter/clientAnswered(_:effects:)``.
    case probe(ClientName)
    /// Report the end of this time with ``DistributedCenter/probeTimedOut(_:effects:)``.
    case startProbeTimer(ClientName, seconds: Int)
    /// Report the end of this time with ``DistributedCenter/inactivityTimerEnded(_:epoch:effects:)``. It takes the place
    /// of an earlier one of the same client.
    case startInactivityTimer(ClientName, epoch: UInt64, milliseconds: Int)
    /// The client does not read and its queue is full: the first notification is lost. A log line is due.
    case overflowed(ClientName, DropReason)
    /// Keep this beyond the life of the process, before what follows is carried out (E3).
    case remember(Change)
    /// From now on, tell the center when this client leaves the bus.
    case watch(ClientName)
    /// The client is no longer known; stop watching it.
    case forget(ClientName)
}

/// A change of state that has to survive the process (E3). Replayed in their order on a new center, changes make it
/// what the old one was; ``Delivery/sequence`` and the sequence of ``Effect/dropped(_:count:observers:reason:sequence:)``
/// come on top.
public enum Change {
    /// A client is known from now on, with these counts.
    case client(ClientName, ClientCounts)
    case clientGone(ClientName)
    case observer(Registration)
    case observersRemoved(ClientName, Set<ObserverID>)
    /// The client's explicit word; nil when it has none.
    case suspension(ClientName, Bool?)
    /// Whether the inactivity of its application suspends the client. That is not taken over, but a later process has to
    /// undo it.
    case suspendedByActivity(ClientName, Bool)
    /// Waits for the client, due as soon as it reads.
    case queuedDue(ClientName, Notification, observers: [ObserverID], DeliveryLane)
    /// Held until the client is resumed; for the observers in `coalescing` it took the place of an earlier one.
    case held(ClientName, Notification, observers: [ObserverID], coalescing: [ObserverID])
    /// All that was held is due, behind what is due already and before anything newer.
    case flushed(ClientName)
    /// The first that was due in a lane left the queue, towards the client.
    case popped(ClientName, DeliveryLane)
    /// The oldest left the queue for want of room.
    case lost(ClientName, DropReason)
    /// What the client lost and was not told yet, in sum.
    case unannouncedLoss(ClientName, count: UInt64, observers: Set<ObserverID>, DropReason)
    /// The client was told what it lost.
    case lossAnnounced(ClientName)
    /// A post waits in its poster's queue, where it took the place of similar ones.
    case postQueued(ClientName, PendingPost, coalescing: Set<CoalescingKey>)
    /// A post that was not queued took the place of similar ones that were.
    case postsReplaced(ClientName, name: String, object: String, coalescing: Set<CoalescingKey>)
    /// The first of a style left its poster's queue, and was posted.
    case postTaken(ClientName, PostingStyle)
}

/// What a client was sent so far.
public struct ClientCounts: Equatable, Sendable {
    /// The sequence number of the last notification that was delivered, or announced as lost.
    public var sequence: UInt64
    public var delivered: UInt64
    public var dropped: UInt64

    public init(sequence: UInt64 = 0, delivered: UInt64 = 0, dropped: UInt64 = 0) {
        self.sequence = sequence
        self.delivered = delivered
        self.dropped = dropped
    }
}

/// One notification on its way to one client (D6).
public struct Delivery {
    public let client: ClientName
    public let notification: Notification
    /// The client's observers that it matched.
    public let observers: ObserverList
    /// The client's count of notifications: 1, 2, 3 … without holes unless ``Effect/dropped(_:count:observers:reason:sequence:)``
    /// said so.
    public let sequence: UInt64
}

/// Why notifications were lost.
public enum DropReason: String, Sendable, CaseIterable {
    /// The client does not read, and its queue reached a limit of its own.
    case queueFull = "queue-full"
    /// The client does not read, and the queues of all clients together reached their limit.
    case totalQueueFull = "total-queue-full"
}
