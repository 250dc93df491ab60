/// What the center knows of one client.
final class Client {
    let name: ClientName
    /// Its registrations and where the index has them.
    var observers: [ObserverID: ObserverIndex<String, String, Observer>.Position] = [:]
    /// The sequence number of the last delivery.
    var sequence: UInt64 = 0
    var delivered: UInt64 = 0
    var dropped: UInt64 = 0

    /// While a post is matched: this client's observers so far.
    var matched: [ObserverID] = []

    init(name: ClientName) {
        self.name = name
    }
}

/// An entry of the index.
struct Observer {
    let registration: Registration
    let client: Client
}

/// A client as it is shown to others.
public struct ClientStatus: Sendable {
    public let name: ClientName
    public let isSuspended: Bool
    public let cause: SuspensionCause
    public let observers: Int
    public let queued: Int
    public let delivered: UInt64
    public let dropped: UInt64
}

/// Why a client is suspended or not.
public enum SuspensionCause: String, Sendable {
    /// Nothing suspends it.
    case none = "none"
    /// The client said so.
    case explicit = "explicit"
    /// Its application's activity.
    case activity = "activity"
}

/// Counters over a center's life, and what it holds at the moment.
public struct Statistics: Equatable, Sendable {
    /// Posts accepted.
    public internal(set) var posted: UInt64 = 0
    /// Posts accepted that no observer matched.
    public internal(set) var unmatched: UInt64 = 0
    /// Deliveries to clients.
    public internal(set) var delivered: UInt64 = 0
    /// Deliveries that were lost for want of room.
    public internal(set) var dropped: UInt64 = 0
    /// Notifications that wait for a client.
    public internal(set) var queued: UInt64 = 0
    public internal(set) var clients: UInt64 = 0
    public internal(set) var observers: UInt64 = 0
}
