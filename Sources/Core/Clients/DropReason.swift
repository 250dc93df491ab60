// SPDX-License-Identifier: Apache-2.0
/// The reason of a loss, as a `Dropped` signal reports it.
public enum DropReason: String, Sendable, CaseIterable {
    /// The client does not read, and its queue reached a limit of its own.
    case queueFull = "queue-full"
    /// The client does not read, and the queues of all clients together reached their limit.
    case totalQueueFull = "total-queue-full"
    /// Posts arrived faster than the service could serve them, and the poster's share of the call queue was full.
    case overload = "overload"
    /// The bus had no space for a sent message, or a notification was too large for the bus. The count is an upper
    /// bound.
    case busLimits = "bus-limits"
    /// The bus closed the connection of the service with messages in flight. The count is an upper bound.
    case busDisconnected = "bus-disconnected"
    /// The channel of the client ended, and the client may not have read the last messages in it. The count is an upper
    /// bound.
    case channelEnded = "channel-ended"
    /// The service died. Numbered notifications may not have left it, or waiting ones were not in the recovery files.
    /// The count is an upper bound.
    case serviceRestarted = "service-restarted"

    /// Whether the lost notifications may have had sequence numbers already. The reported count is then an upper bound.
    public var isBound: Bool { [.busLimits, .busDisconnected, .channelEnded, .serviceRestarted].contains(self) }
}
