// SPDX-License-Identifier: Apache-2.0
/// An action that the center has decided on. The driver carries effects out in their order.
public enum Effect {
    /// Send the client a notification.
    case deliver(Delivery)
    /// Send the client these notifications in one message, in their order. The client wants batches, and there is at
    /// least one.
    case deliverTogether(ClientName, [Delivery])
    /// Send the notification to the other sessions of the machine that want it.
    case export(ExportedNotification)
    /// Report the end of a value to the other sessions that have it (R8).
    case exportEnded(NotificationKey)
    /// Report lost notifications to the client, before it gets a newer one (S4).
    ///
    /// - Parameters:
    ///   - observers: the observers of the lost notifications; empty where they are unknown.
    ///   - sequence: the client's count of notifications, including the lost ones.
    case dropped(ClientName, count: UInt64, observers: [ObserverID], reason: DropReason, sequence: UInt64)
    /// Announce to the client that it is suspended or resumed.
    case suspensionChanged(ClientName, isSuspended: Bool, cause: SuspensionCause)
    /// Announce to the client that policy removed these observers (P2).
    case revoked(ClientName, observers: [ObserverID])
    /// Announce to the client that the wanted names have changed since it asked (G4).
    case interestChanged(ClientName)
    /// Announce to the client that a value was removed since it asked for the values (G5).
    case valuesRemoved(ClientName)
    /// Probe the client, and report its answer with ``DistributedCenter/clientAnswered(_:effects:)``.
    case probe(ClientName)
    /// Find out by a backlog probe whether the connection has read all that was sent to it. It never answered a probe,
    /// or it waits for an answer to its own call. Report the result with
    /// ``DistributedCenter/backlogProbed(_:hasRead:effects:)``, sooner or later.
    case backlogProbe(ClientName)
    /// Send the connection the oldest of its pending answers.
    case sendAnswer(ClientName)
    /// Probe a client on the bus that has or had a channel, and report its answer with
    /// ``DistributedCenter/repliesAnswered(by:effects:)``.
    case probeReplies(ClientName)
    /// Find out by a backlog probe whether the client has read all that was sent to it on the bus. Report the result
    /// with ``DistributedCenter/replyBacklogProbed(of:hasRead:effects:)``, sooner or later.
    case probeReplyBacklog(ClientName)
    /// Send the client the oldest of its pending replies, on the bus beside its channel.
    case sendReply(ClientName)
    /// Report the end of this time with ``DistributedCenter/inactivityTimerEnded(_:epoch:effects:)``. The timer
    /// replaces an earlier one of the same client.
    case startInactivityTimer(ClientName, epoch: UInt64, milliseconds: Int)
    /// Report the end of this time with ``DistributedCenter/intervalTimerEnded(_:effects:)``. The timer replaces an
    /// earlier one of the same client.
    case startIntervalTimer(ClientName, milliseconds: UInt32)
    /// Write a line into the log at the beginning of a loss: the queue of a client that does not read is full, or messages to it were lost.
    case overflowed(ClientName, DropReason)
    /// Record in the recovery log how many of the client's last sequence numbers may be lost and are not announced; 0 when the loss is
    /// announced. It has to survive the process. Until then these numbers do not count as carried (E3).
    case possibleLoss(ClientName, count: UInt64)
    /// Record this change in the recovery log, before the later effects are carried out (E3).
    case remember(Change)
    /// Report to the center when this client leaves the bus.
    case watch(ClientName)
    /// Report to the center when this connection leaves the bus. It is not a client, and pays for retained values.
    case watchDeparture(ClientName)
    /// Stop watching the client, which the center has forgotten.
    case forget(ClientName)
}

/// One notification for one client (D6).
public struct Delivery {
    public let client: ClientName
    /// A small number, unique among the present clients. The driver finds its state of the client by it. The number is
    /// reused after the client has left.
    public let clientNumber: Int
    public let notification: Notification
    /// The details about the notification that the client wants.
    public let details: Details
    /// The expiry, in microseconds since 1970 in UTC, where the client wants it; nil for never.
    public let expiryTime: Int64?
    /// Whether it is a value from before the observer's registration (R2).
    public let isRetained: Bool
    /// Whether it was throttled (R5), so that newer notifications may have come before it.
    public let isDelayed: Bool
    /// The client's observers that the notification matched.
    public let observers: ObserverList
    /// The client's count of notifications: 1, 2, 3 … It has a hole only where
    /// ``Effect/dropped(_:count:observers:reason:sequence:)`` reported a loss.
    public let sequence: UInt64

    /// The approximate size of the notification on the bus, in bytes (``DistributedCenter/maxBytes``).
    public var carriedBytes: Int { notification.byteCount + 8 * observers.count }
}
