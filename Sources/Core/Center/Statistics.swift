// SPDX-License-Identifier: Apache-2.0
/// The status of a client, or of another connection that does not acknowledge its messages. `ListClients` and `carillon
/// clients` show it.
public struct ClientStatus: Sendable {
    public let name: ClientName
    public let isSuspended: Bool
    public let cause: SuspensionCause
    public let observers: Int
    /// Notifications that wait for the client: due, held or throttled.
    public let queued: Int
    public let delivered: UInt64
    public let dropped: UInt64
    public let flow: FlowState
    /// The number of messages to the client that are not acknowledged.
    public let unconfirmed: Int
    /// Posts of the client that were accepted and posted, without queued ones.
    public let posted: UInt64

    init(_ peer: Peer, _ client: Client?) {
        name = peer.name
        isSuspended = client?.isSuspended ?? false
        cause = client?.suspensionCause ?? .none
        observers = client?.observers.count ?? 0
        queued = client?.queue.count ?? 0
        delivered = client?.counts.delivered ?? 0
        dropped = client?.counts.dropped ?? 0
        flow = peer.flow.state
        unconfirmed = peer.flow.unconfirmed.messages
        posted = peer.posted
    }
}

/// The status of a connection that has posted. `ListPosters` and `carillon top` show it.
public struct PosterStatus: Equatable, Sendable {
    public let name: ClientName
    public let identity: Identity
    /// Posts of the connection that were accepted and posted, without queued ones.
    public let posted: UInt64
    /// Posts of the connection that were refused.
    public let refused: UInt64

    /// Returns nil for a connection that has not posted, and for one without a known identity.
    init?(_ peer: Peer) {
        guard peer.posted > 0 || peer.refused > 0, let identity = peer.identity else { return nil }
        name = peer.name
        self.identity = identity
        posted = peer.posted
        refused = peer.refused
    }

    /// Whether this poster is listed first: by more posts, then by more refusals, then by the smaller name.
    func precedes(_ other: PosterStatus) -> Bool {
        if posted != other.posted { return posted > other.posted }
        return refused != other.refused ? refused > other.refused : name < other.name
    }
}

/// The counters of a center since it began, and its present usage of resources. When the service gets a new connection
/// to the bus, the next center takes over the counters.
///
/// Values in bytes are sizes as they count against the limits (``Limits``).
public struct Statistics: Equatable, Sendable {
    /// Posts that were posted and got a serial. Posts that still wait in posting queues are not included.
    public internal(set) var posted: UInt64 = 0
    /// The part of ``posted`` that no observer matched; monitors do not count.
    public internal(set) var unmatched: UInt64 = 0
    /// Deliveries to clients.
    public internal(set) var delivered: UInt64 = 0
    /// Notifications that clients did not receive, or may not have received: a queue was full, the bus refused them, or
    /// a connection or the service ended while they were in flight.
    public internal(set) var dropped: UInt64 = 0
    /// Held and throttled notifications, and posts in posting queues, that a newer one replaced.
    public internal(set) var coalesced: UInt64 = 0
    /// Posts in posting queues that an earlier process could not save when it ended.
    public internal(set) var lostPosts: UInt64 = 0
    /// Notifications that wait for clients now.
    public internal(set) var queued: UInt64 = 0
    /// The size of ``queued``, in bytes.
    public internal(set) var queuedBytes: UInt64 = 0
    /// The size of the state of minimum intervals, in bytes (R5).
    public internal(set) var intervalBytes: UInt64 = 0
    /// Posts in posting queues now.
    public internal(set) var queuedPosts: UInt64 = 0
    /// The size of ``queuedPosts``, in bytes.
    public internal(set) var queuedPostBytes: UInt64 = 0
    /// The size of the messages in flight, in bytes.
    public internal(set) var inFlightBytes: UInt64 = 0
    /// The size of pending answers, which wait until their callers read, in bytes.
    public internal(set) var answerBytes: UInt64 = 0
    /// The size of calls and partial posts that wait to be served, in bytes.
    public internal(set) var waitingCallBytes: UInt64 = 0
    /// Retained values now.
    public internal(set) var retained: UInt64 = 0
    /// The size of ``retained``, in bytes.
    public internal(set) var retainedBytes: UInt64 = 0
    /// Posts with `retain` that were not retained, as there was no space when they left their posting queue.
    public internal(set) var unretained: UInt64 = 0
    /// Values of departed posters that were removed to make space for others.
    public internal(set) var displaced: UInt64 = 0
    /// Notifications that expired before they were sent, and values that expired.
    public internal(set) var expired: UInt64 = 0
    public internal(set) var clients: UInt64 = 0
    public internal(set) var observers: UInt64 = 0
    /// The size of all registrations, in bytes.
    public internal(set) var observerBytes: UInt64 = 0
    /// The memory that the center holds for clients, in bytes; `memory-bytes` limits it.
    public internal(set) var memoryBytes: UInt64 = 0
}
