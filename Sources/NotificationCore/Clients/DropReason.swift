/// Why notifications were lost.
public enum DropReason: String, Sendable, CaseIterable {
    /// The client does not read, and its queue reached a limit of its own.
    case queueFull = "queue-full"
    /// The client does not read, and the queues of all clients together reached their limit.
    case totalQueueFull = "total-queue-full"
    /// The service died, and what it had numbered for the client may not have left it; or what it held could not be kept.
    case serviceRestarted = "service-restarted"
}
