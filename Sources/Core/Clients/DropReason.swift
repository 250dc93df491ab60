// SPDX-License-Identifier: Apache-2.0
/// The reason why notifications were lost.
public enum DropReason: String, Sendable, CaseIterable {
    /// The client does not read, and its queue reached a limit of its own.
    case queueFull = "queue-full"
    /// The client does not read, and the queues of all clients together reached their limit.
    case totalQueueFull = "total-queue-full"
    /// Posts came faster than the service can serve them, and their poster's share of waiting calls was used up.
    case overload = "overload"
    /// The bus had no space for sent messages; the count is an upper bound.
    case busLimits = "bus-limits"
    /// The bus closed the service's connection with messages in flight; the count is an upper bound.
    case busDisconnected = "bus-disconnected"
    /// The client's channel ended, and the client may not have read the last messages there; the count is an upper
    /// bound.
    case channelEnded = "channel-ended"
    /// The service died. Numbered notifications may not have left it, or held ones could not be preserved; the count is
    /// an upper bound.
    case serviceRestarted = "service-restarted"

    /// Whether the lost notifications had sequence numbers already, so that the announced count is an upper bound.
    public var isBound: Bool { [.busLimits, .busDisconnected, .channelEnded, .serviceRestarted].contains(self) }
}
