// SPDX-License-Identifier: Apache-2.0
/// A change of the center's state that must survive the process: an entry of the recovery log (E3).
///
/// The center emits each change as ``Effect/remember(_:)``. After a restart ``DistributedCenter/restore(_:)`` applies
/// all changes in their order to a new center, which restores the old state. The sequence numbers of clients are not
/// logged here: counters beside the log keep them, because every delivery advances them.
public enum Change {
    /// A new client, with the counts of its deliveries and losses.
    case client(ClientName, ClientCounts)
    case clientGone(ClientName)
    case observer(Registration)
    case observersRemoved(ClientName, Set<ObserverID>)
    /// Policy removed these observers (P3); the client may have removed some of them before. The client has not
    /// acknowledged the signal about it yet.
    case observersRevoked(ClientName, Set<ObserverID>)
    /// The client has acknowledged the signals about all revoked observers.
    case revocationsKnown(ClientName)
    /// The suspension that the client set itself; nil when it has set none.
    case suspension(ClientName, Bool?)
    /// The suspension that another program set for the client. It overrides the client's own; nil when there is none.
    case suspensionOverridden(ClientName, Bool?)
    /// The options of the client.
    case options(ClientName, ClientOptions)
    /// Whether the inactivity of its application suspends the client. The next process does not keep this suspension,
    /// because the activity may have changed. It announces the end of the suspension to the client instead.
    case suspendedByActivity(ClientName, Bool)
    /// Whether the present suspension is still to be announced to the client, or its announcement is unacknowledged.
    case suspensionNoticePending(ClientName, Bool)
    /// The client follows the interest of other clients: it gets a signal when the wanted names change.
    case interestFollowed(ClientName)
    /// The client follows the retained values: it gets a signal when a value is removed.
    case valuesFollowed(ClientName)
    /// A notification is due to the client, and waits in this lane until the client acknowledges earlier messages.
    case queuedDue(ClientName, Notification, observers: [ObserverID], DeliveryLane)
    /// A notification is held until the client is resumed. For the observers in `coalescing` it replaced the earlier
    /// held notification of the same key.
    case held(ClientName, Notification, observers: [ObserverID], coalescing: [ObserverID])
    /// A notification is throttled until the intervals of these observers end (R5). It replaced the earlier throttled
    /// notification of its key.
    case throttled(ClientName, Notification, observers: [ObserverID])
    /// These observers no longer wait for the throttled notification of this key: it was sent, replaced by a delivery,
    /// lost, or it expired.
    case throttleEnded(ClientName, NotificationKey, observers: [ObserverID])
    /// All held notifications became due. Together with earlier due ones they go out before anything newer.
    case flushed(ClientName)
    /// The first due notification of a lane left the queue: it was sent, or it expired.
    case popped(ClientName, DeliveryLane)
    /// The oldest notification left the queue and is lost, because a limit was reached.
    case lost(ClientName, DropReason)
    /// The sum of the client's losses that were not reported yet. It replaces an earlier sum.
    case unreportedLoss(ClientName, count: UInt64, observers: ObserverSet, DropReason)
    /// All losses were reported to the client.
    case lossAnnounced(ClientName)
    /// A notification became the retained value of its key.
    case retained(Notification, Retention)
    /// The value of this key was removed. The client is its poster.
    case unretained(ClientName, NotificationKey)
    /// The new position of an observer's replay of values. A position at the end of the replay ends it.
    case replays(ClientName, RetainedReplay)
    /// A post entered its poster's queue. It replaced similar posts there: those equal to it in the parts in
    /// `coalescing`.
    case postQueued(ClientName, PendingPost, coalescing: Set<CoalescingKey>)
    /// A post that goes out at once replaced similar posts in its poster's queue.
    case postsReplaced(ClientName, name: String, object: String, coalescing: Set<CoalescingKey>)
    /// The poster withdrew its queued posts of this name and object; an empty string means any.
    case postsWithdrawn(ClientName, name: String, object: String)
    /// The first post of this style left its poster's queue, because it was posted.
    case postTaken(ClientName, PostingStyle)
    /// The part of a resource's usage that does not count against its lowered limit. Without such a change all usage
    /// counts.
    case excess(Limits.Key, Excess)
}
