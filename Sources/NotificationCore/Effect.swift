/// What the center wants done. It has decided already; whoever drives it carries effects out in their order.
public enum Effect {
    /// Send the client a notification.
    case deliver(Delivery)
    /// From now on, tell the center when this client leaves the bus.
    case watch(ClientName)
    /// The client is no longer known; stop watching it.
    case forget(ClientName)
}

/// One notification on its way to one client (D6).
public struct Delivery {
    public let client: ClientName
    public let notification: Notification
    /// The client's observers that it matched.
    public let observers: ObserverList
    /// The client's count of deliveries: 1, 2, 3 … without holes.
    public let sequence: UInt64
}
