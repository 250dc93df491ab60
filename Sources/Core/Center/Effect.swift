// SPDX-License-Identifier: Apache-2.0
/// What the center wants done. It has decided already; whoever drives it carries effects out in their order.
public enum Effect {
    /// Send the client a notification.
    case deliver(Delivery)
    /// Send the client these notifications in one message, in their order. It asked for that, and there is at least one.
    case deliverTogether(ClientName, [Delivery])
    /// Send it to the other sessions of the machine that want it.
    case export(ExportedNotification)
    /// Tell them that a value that they have as well is none any more (R8).
    case exportEnded(NotificationKey)
    /// Tell the client that it lost notifications, before it gets a newer one (S4).
    ///
    /// - Parameters:
    ///   - observers: empty where it is not known whose they were.
    ///   - sequence: the client's count of notifications with the lost ones.
    case dropped(ClientName, count: UInt64, observers: [ObserverID], reason: DropReason, sequence: UInt64)
    /// Tell the client that it is suspended or resumed.
    case suspensionChanged(ClientName, isSuspended: Bool, cause: SuspensionCause)
    /// Tell the client that it has these observers no longer, which it did not remove itself (P2).
    case revoked(ClientName, observers: [ObserverID])
    /// Tell the client that other names are wanted than when it asked (G4).
    case interestChanged(ClientName)
    /// Tell the client that a value has gone since it asked which there are (G5).
    case valuesRemoved(ClientName)
    /// Ask the client for an answer, and report that with ``DistributedCenter/clientAnswered(_:effects:)``.
    case probe(ClientName)
    /// Find out in another way whether the connection, which never answered, has read what it was sent, and report that
    /// with ``DistributedCenter/clientWitnessed(_:hasRead:effects:)``, sooner or later.
    case witness(ClientName)
    /// Send the connection the oldest of the answers that are kept for it.
    case sendAnswer(ClientName)
    /// Ask a client that has or had a channel for an answer on the bus, and report that with
    /// ``DistributedCenter/repliesAnswered(by:effects:)``.
    case probeReplies(ClientName)
    /// Find out in another way whether it has read what it was sent on the bus, and report that with
    /// ``DistributedCenter/repliesWitnessed(of:hasRead:effects:)``, sooner or later.
    case witnessReplies(ClientName)
    /// Send it the oldest of the replies that are kept for it beside its channel.
    case sendReply(ClientName)
    /// Report the end of this time with ``DistributedCenter/inactivityTimerEnded(_:epoch:effects:)``. It takes the place
    /// of an earlier one of the same client.
    case startInactivityTimer(ClientName, epoch: UInt64, milliseconds: Int)
    /// Report the end of this time with ``DistributedCenter/intervalTimerEnded(_:effects:)``. It takes the place of an
    /// earlier one of the same client.
    case startIntervalTimer(ClientName, milliseconds: UInt32)
    /// The client does not read and its queue is full: the first notification is lost. A log line is due.
    case overflowed(ClientName, DropReason)
    /// So many of the client's last numbers are of what it may not have got, and was not told of yet; none when it is told
    /// now. That has to survive the process: until then they do not count as carried (E3).
    case possibleLoss(ClientName, count: UInt64)
    /// Keep this beyond the life of the process, before what follows is carried out (E3).
    case remember(Change)
    /// From now on, tell the center when this client leaves the bus.
    case watch(ClientName)
    /// The same for a connection that is no client, and pays for values that are kept.
    case watchDeparture(ClientName)
    /// The client is no longer known; stop watching it.
    case forget(ClientName)
}

/// One notification on its way to one client (D6).
public struct Delivery {
    public let client: ClientName
    /// A small number that no other client has while this one is there: where whoever carries it out finds what it knows of
    /// the client. It is another's afterwards.
    public let clientNumber: Int
    public let notification: Notification
    /// What the client wants to be told about it besides.
    public let details: Details
    /// When it is over, in microseconds since 1970 in UTC, where the client wants to be told; nil for never.
    public let expiryTime: Int64?
    /// Whether it is a value that there was before the observer asked (R2).
    public let isRetained: Bool
    /// Whether it comes behind the end of an interval (R5), so that newer ones may have come before.
    public let isDelayed: Bool
    /// The client's observers that it matched.
    public let observers: ObserverList
    /// The client's count of notifications: 1, 2, 3 … without holes unless ``Effect/dropped(_:count:observers:reason:sequence:)``
    /// said so.
    public let sequence: UInt64

    /// What the bus carries of it, in bytes, about (``DistributedCenter/maxBytes``).
    public var carriedBytes: Int { notification.byteCount + 8 * observers.count }
}
