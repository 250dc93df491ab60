// SPDX-License-Identifier: Apache-2.0
/// The status of a client for other programs.
public struct ClientStatus: Sendable {
    public let name: ClientName
    public let isSuspended: Bool
    public let cause: SuspensionCause
    public let observers: Int
    /// Notifications that wait for the client.
    public let queued: Int
    public let delivered: UInt64
    public let dropped: UInt64
    public let flow: FlowState
    /// Messages that were sent to the client and that it has not acknowledged.
    public let unconfirmed: Int
    /// Accepted posts of the client.
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

/// The status of a connection that has posted, for other programs.
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

/// Counters over a center's life, and its present usage.
public struct Statistics: Equatable, Sendable {
    /// Posts that got a serial. Posts in posting queues are not among them.
    public internal(set) var posted: UInt64 = 0
    /// Posts of these that no observer matched.
    public internal(set) var unmatched: UInt64 = 0
    /// Deliveries to clients.
    public internal(set) var delivered: UInt64 = 0
    /// Notifications that clients missed or may have missed: beyond the limit of a queue, refused by the bus, or in
    /// flight when a connection or the service ended.
    public internal(set) var dropped: UInt64 = 0
    /// Held and throttled notifications, and posts in posting queues, that a newer one replaced.
    public internal(set) var coalesced: UInt64 = 0
    /// Posts in posting queues that were lost, as an earlier process could not keep them when it ended.
    public internal(set) var lostPosts: UInt64 = 0
    /// Notifications that wait for clients.
    public internal(set) var queued: UInt64 = 0
    /// The size of waiting notifications, as it counts against the limits, in bytes.
    public internal(set) var queuedBytes: UInt64 = 0
    /// The state of minimum intervals, in bytes (R5).
    public internal(set) var intervalBytes: UInt64 = 0
    /// Posts that wait in posting queues.
    public internal(set) var queuedPosts: UInt64 = 0
    /// The size of posts in posting queues, as it counts against the limits, in bytes.
    public internal(set) var queuedPostBytes: UInt64 = 0
    /// The size of in-flight messages, which were sent and not acknowledged, in bytes.
    public internal(set) var inFlightBytes: UInt64 = 0
    /// The size of pending answers to callers that do not read, in bytes.
    public internal(set) var answerBytes: UInt64 = 0
    /// The size of calls and partial posts that wait to be served, in bytes.
    public internal(set) var waitingCallBytes: UInt64 = 0
    /// Retained values.
    public internal(set) var retained: UInt64 = 0
    /// The size of retained values, as it counts against the limits, in bytes.
    public internal(set) var retainedBytes: UInt64 = 0
    /// Posts with `retain` that were not retained, as there was no space when they left their posting queue.
    public internal(set) var unretained: UInt64 = 0
    /// Values of departed posters that were removed to make space for others.
    public internal(set) var displaced: UInt64 = 0
    /// Notifications that expired before they were sent, and values that expired.
    public internal(set) var expired: UInt64 = 0
    public internal(set) var clients: UInt64 = 0
    public internal(set) var observers: UInt64 = 0
    /// The size of registrations, as it counts against the limits, in bytes.
    public internal(set) var observerBytes: UInt64 = 0
    /// The total memory, as it counts against the limits, in bytes.
    public internal(set) var memoryBytes: UInt64 = 0
}
