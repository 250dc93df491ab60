// SPDX-License-Identifier: Apache-2.0
/// An action that the center has decided on, such as a signal to send. Each event of the center appends its effects to
/// a list. The driver (`CenterDriver` in the service) carries them out in their order.
public enum Effect {
    /// Send the client a notification.
    case deliver(Delivery)
    /// Send the client these notifications in one message, in their order. The client has the option `batches`, and the
    /// list is not empty.
    case deliverTogether(ClientName, [Delivery])
    /// Send the notification to the other sessions of the machine that want it.
    case export(ExportedNotification)
    /// Report the end of a value to the other sessions that have it (R8).
    case exportEnded(NotificationKey)
    /// Report lost notifications to the client by a `Dropped` signal, before it gets a newer notification (S4).
    ///
    /// - Parameters:
    ///   - observers: the observers of the lost notifications; empty where they are unknown.
    ///   - sequence: the client's last sequence number, which includes the lost notifications.
    case dropped(ClientName, count: UInt64, observers: [ObserverID], reason: DropReason, sequence: UInt64)
    /// Announce to the client that it is suspended or resumed.
    case suspensionChanged(ClientName, isSuspended: Bool, cause: SuspensionCause)
    /// Announce to the client that policy removed these observers (P2).
    case revoked(ClientName, observers: [ObserverID])
    /// Announce to the client, once, that the wanted names have changed since it asked for them (G4).
    case interestChanged(ClientName)
    /// Announce to the client, once, that a value was removed since it asked for the values (G5).
    case valuesRemoved(ClientName)
    /// Send the client a `Peer.Ping`, and report its answer with ``DistributedCenter/clientAnswered(_:effects:)``.
    case probe(ClientName)
    /// Find out by a socket backlog probe whether the connection has read all messages so far. It never answered a
    /// Ping, or it waits for the reply to its own call. Report the result with
    /// ``DistributedCenter/backlogProbed(_:hasRead:effects:)``, sooner or later.
    case backlogProbe(ClientName)
    /// Send the connection the oldest of its pending answers: replies to its calls, which the driver keeps.
    case sendAnswer(ClientName)
    /// Send a Ping on the bus to a client that has or had a channel. Its answer acknowledges the replies that it got on
    /// the bus. Report the answer with ``DistributedCenter/repliesAnswered(by:effects:)``.
    case probeReplies(ClientName)
    /// Find out by a socket backlog probe whether the client has read all replies on the bus. Report the result with
    /// ``DistributedCenter/replyBacklogProbed(of:hasRead:effects:)``, sooner or later.
    case probeReplyBacklog(ClientName)
    /// Send the client the oldest of its pending replies, on the bus beside its channel.
    case sendReply(ClientName)
    /// Start a timer, and report its end with ``DistributedCenter/inactivityTimerEnded(_:epoch:effects:)``. It replaces
    /// an earlier timer of this kind for the client.
    case startInactivityTimer(ClientName, epoch: UInt64, milliseconds: Int)
    /// Start a timer, and report its end with ``DistributedCenter/intervalTimerEnded(_:effects:)``. It replaces an
    /// earlier timer of this kind for the client.
    case startIntervalTimer(ClientName, milliseconds: UInt32)
    /// Write to the service's log that losses of the client begin: its queue is full, a notification was too large, or
    /// messages may not have arrived.
    case overflowed(ClientName, DropReason)
    /// Record in the recovery log how many of the client's last sequence numbers belong to a possible loss that is not
    /// reported; 0 once it is reported. If the process ends before that, the next one reports these numbers as lost
    /// (E3).
    case possibleLoss(ClientName, count: UInt64)
    /// Record this change in the recovery log before the later effects are carried out (E3).
    case remember(Change)
    /// Watch the client, and report its departure with ``DistributedCenter/clientDisappeared(_:effects:)``.
    case watch(ClientName)
    /// Watch a connection that is not a client but pays for retained values, and report its departure in the same way.
    case watchDeparture(ClientName)
    /// Stop watching this connection and drop the driver's state of it: the center has forgotten it.
    case forget(ClientName)
}

/// One notification with its sequence number, as a client receives it (D6).
public struct Delivery {
    public let client: ClientName
    /// A small number, unique among the present clients, by which the driver finds its state of the client. It is
    /// reused after the client has left.
    public let clientNumber: Int
    public let notification: Notification
    /// The details about the notification that the client asked for, such as the poster's identity.
    public let details: Details
    /// The expiry, in microseconds since 1970 in UTC, if the client asked for it; nil for never.
    public let expiryTime: Int64?
    /// Whether it is a retained value from before the observer's registration (R2).
    public let isRetained: Bool
    /// Whether it was throttled (R5). Newer notifications may then have arrived before it.
    public let isDelayed: Bool
    /// The client's observers that get the notification.
    public let observers: ObserverList
    /// The number of the notification in the client's stream: 1, 2, 3 … A hole exists only where
    /// ``Effect/dropped(_:count:observers:reason:sequence:)`` reports a loss.
    public let sequence: UInt64

    /// The approximate size of the notification on the bus, in bytes, with 8 bytes for each observer's number.
    public var carriedBytes: Int { notification.byteCount + 8 * observers.count }
}
