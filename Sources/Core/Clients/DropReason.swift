// SPDX-License-Identifier: Apache-2.0
/// Why notifications were lost.
public enum DropReason: String, Sendable, CaseIterable {
    /// The client does not read, and its queue reached a limit of its own.
    case queueFull = "queue-full"
    /// The client does not read, and the queues of all clients together reached their limit.
    case totalQueueFull = "total-queue-full"
    /// More was posted than the service can serve, and its posters' part of what may wait was used up.
    case overload = "overload"
    /// The bus had no room for what was sent: so many at most.
    case busLimits = "bus-limits"
    /// The bus closed the service's connection with this on its way: so many at most.
    case busDisconnected = "bus-disconnected"
    /// The client's channel ended, and it may not have read the last of what was written there: so many at most.
    case channelEnded = "channel-ended"
    /// The service died, and what it had numbered for the client may not have left it; or what it held could not be kept.
    case serviceRestarted = "service-restarted"

    /// Whether the lost had their numbers already, and may be fewer than was told.
    public var isBound: Bool { [.busLimits, .busDisconnected, .channelEnded, .serviceRestarted].contains(self) }
}
