// SPDX-License-Identifier: Apache-2.0
/// A change of state that has to survive the process (E3). Replayed in their order on a new center, changes make it
/// what the old one was; ``Delivery/sequence`` and the sequence of ``Effect/dropped(_:count:observers:reason:sequence:)``
/// come on top.
public enum Change {
    /// A client is known from now on, with these counts.
    case client(ClientName, ClientCounts)
    case clientGone(ClientName)
    case observer(Registration)
    case observersRemoved(ClientName, Set<ObserverID>)
    /// Policy took these from the client (P3), if they were still there, and it may not know.
    case observersRevoked(ClientName, Set<ObserverID>)
    /// The client knows all that policy took from it.
    case revocationsKnown(ClientName)
    /// The client's explicit word; nil when it has none.
    case suspension(ClientName, Bool?)
    /// Somebody else's word about the client, which holds over its own; nil when there is none.
    case suspensionOverridden(ClientName, Bool?)
    /// How the client wants to be served.
    case options(ClientName, ClientOptions)
    /// Whether the inactivity of its application suspends the client. That is not taken over, but a later process has to
    /// undo it.
    case suspendedByActivity(ClientName, Bool)
    /// Whether the client does not know yet whether it is suspended, as it does not read.
    case suspensionOwed(ClientName, Bool)
    /// The client follows what others want.
    case interestFollowed(ClientName)
    /// The client follows which values there are.
    case valuesFollowed(ClientName)
    /// Waits for the client, due as soon as it reads.
    case queuedDue(ClientName, Notification, observers: [ObserverID], DeliveryLane)
    /// Held until the client is resumed; for the observers in `coalescing` it took the place of an earlier one.
    case held(ClientName, Notification, observers: [ObserverID], coalescing: [ObserverID])
    /// Waits until the intervals of these observers are over (R5), in the place of what they waited for of its kind.
    case delayed(ClientName, Notification, observers: [ObserverID])
    /// These observers have what they waited for of this kind, or its time is over.
    case delayEnded(ClientName, NotificationKey, observers: [ObserverID])
    /// All that was held is due, behind what is due already and before anything newer.
    case flushed(ClientName)
    /// The first that was due in a lane left the queue, towards the client.
    case popped(ClientName, DeliveryLane)
    /// The oldest left the queue for want of room.
    case lost(ClientName, DropReason)
    /// What the client lost and was not told yet, in sum.
    case unannouncedLoss(ClientName, count: UInt64, observers: ObserverSet, DropReason)
    /// The client was told what it lost.
    case lossAnnounced(ClientName)
    /// The value of its kind from now on.
    case retained(Notification, Retention)
    /// There is no value of this kind any more. The client had posted it.
    case unretained(ClientName, NotificationKey)
    /// What an observer has yet to get of the values that there were; over where nothing is left of it.
    case owed(ClientName, RetainedReplay)
    /// A post waits in its poster's queue, where it took the place of similar ones.
    case postQueued(ClientName, PendingPost, coalescing: Set<CoalescingKey>)
    /// A post that was not queued took the place of similar ones that were.
    case postsReplaced(ClientName, name: String, object: String, coalescing: Set<CoalescingKey>)
    /// The poster took back what it had queued of this name and object, empty for any.
    case postsWithdrawn(ClientName, name: String, object: String)
    /// The first of a style left its poster's queue, and was posted.
    case postTaken(ClientName, PostingStyle)
    /// An amount does not count in the total with this limit. Without such a change everything counts.
    case excess(Limits.Key, Excess)
}
