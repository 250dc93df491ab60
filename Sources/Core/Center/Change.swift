// SPDX-License-Identifier: Apache-2.0
/// A change of state that has to survive the process (E3). A replay of all changes in their order on a new center
/// restores the old state. ``Delivery/sequence`` and the sequence of
/// ``Effect/dropped(_:count:observers:reason:sequence:)`` are restored separately.
public enum Change {
    /// A client is known from now on, with these counts.
    case client(ClientName, ClientCounts)
    case clientGone(ClientName)
    case observer(Registration)
    case observersRemoved(ClientName, Set<ObserverID>)
    /// Policy removed these observers (P3), if they were still there, and the client may not know.
    case observersRevoked(ClientName, Set<ObserverID>)
    /// The client knows all revoked observers.
    case revocationsKnown(ClientName)
    /// The client's own choice of suspension; nil when it has none.
    case suspension(ClientName, Bool?)
    /// The suspension that another program set, which overrides the client's own choice; nil when there is none.
    case suspensionOverridden(ClientName, Bool?)
    /// The options of the client.
    case options(ClientName, ClientOptions)
    /// Whether the inactivity of its application suspends the client. A later process does not keep that suspension,
    /// but has to announce its end.
    case suspendedByActivity(ClientName, Bool)
    /// Whether the suspension has yet to be announced to the client, or the announcement is unacknowledged.
    case suspensionNoticePending(ClientName, Bool)
    /// The client follows the interest of other clients.
    case interestFollowed(ClientName)
    /// The client follows the retained values.
    case valuesFollowed(ClientName)
    /// A notification is due to the client, and waits until it reads.
    case queuedDue(ClientName, Notification, observers: [ObserverID], DeliveryLane)
    /// A notification is held until the client is resumed. For the observers in `coalescing` it replaced an earlier
    /// one.
    case held(ClientName, Notification, observers: [ObserverID], coalescing: [ObserverID])
    /// A notification is throttled until the intervals of these observers end (R5). It replaced the previous one of its
    /// key.
    case throttled(ClientName, Notification, observers: [ObserverID])
    /// The throttled notification of this key was sent to these observers, was replaced by a delivery, was lost, or
    /// expired.
    case throttleEnded(ClientName, NotificationKey, observers: [ObserverID])
    /// All held notifications are due, behind the due ones and before anything newer.
    case flushed(ClientName)
    /// The first due notification of a lane left the queue, towards the client or because it expired.
    case popped(ClientName, DeliveryLane)
    /// The oldest notification left the queue, as the queue was full.
    case lost(ClientName, DropReason)
    /// The sum of the client's losses that were not announced yet.
    case unreportedLoss(ClientName, count: UInt64, observers: ObserverSet, DropReason)
    /// The losses were announced to the client.
    case lossAnnounced(ClientName)
    /// A notification became the value of its key.
    case retained(Notification, Retention)
    /// The value of this key, which the client had posted, was removed.
    case unretained(ClientName, NotificationKey)
    /// The progress of an observer's replay of values. The replay has ended where no values are left.
    case replays(ClientName, RetainedReplay)
    /// A post was queued for its poster, and replaced similar ones there.
    case postQueued(ClientName, PendingPost, coalescing: Set<CoalescingKey>)
    /// A post that was not queued replaced similar queued posts.
    case postsReplaced(ClientName, name: String, object: String, coalescing: Set<CoalescingKey>)
    /// The poster withdrew its queued posts of this name and object; empty means any.
    case postsWithdrawn(ClientName, name: String, object: String)
    /// The first post of a style left its poster's queue, and was posted.
    case postTaken(ClientName, PostingStyle)
    /// An amount that does not count in the total of this limit. Without such a change everything counts.
    case excess(Limits.Key, Excess)
}
