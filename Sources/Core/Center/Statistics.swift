// SPDX-License-Identifier: Apache-2.0
/// A client as it is shown to others.
public struct ClientStatus: Sendable {
    public let name: ClientName
    public let isSuspended: Bool
    public let cause: SuspensionCause
    public let observers: Int
    /// Notifications that wait for it.
    public let queued: Int
    public let delivered: UInt64
    public let dropped: UInt64
    public let flow: FlowState
    /// Messages that were sent to it and that it has not confirmed.
    public let unconfirmed: Int
    /// Posts of it that were accepted.
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

/// A connection that has posted, as it is shown to others.
public struct PosterStatus: Equatable, Sendable {
    public let name: ClientName
    public let identity: Identity
    /// Posts of it that were accepted, and posted for real.
    public let posted: UInt64
    /// Posts of it that were refused.
    public let refused: UInt64

    /// Nil for one that has not posted, and where nothing tells who it is.
    init?(_ peer: Peer) {
        guard peer.posted > 0 || peer.refused > 0, let identity = peer.identity else { return nil }
        name = peer.name
        self.identity = identity
        posted = peer.posted
        refused = peer.refused
    }

    /// The busiest comes first.
    func precedes(_ other: PosterStatus) -> Bool {
        if posted != other.posted { return posted > other.posted }
        return refused != other.refused ? refused > other.refused : name < other.name
    }
}

/// Counters over a center's life, and what it holds at the moment.
public struct Statistics: Equatable, Sendable {
    /// Posts that were posted for real: each has a serial. What waits in posters' queues comes on top.
    public internal(set) var posted: UInt64 = 0
    /// Those of them that no observer matched.
    public internal(set) var unmatched: UInt64 = 0
    /// Deliveries to clients.
    public internal(set) var delivered: UInt64 = 0
    /// Deliveries that were lost for want of room.
    public internal(set) var dropped: UInt64 = 0
    /// Held notifications, and posts in posters' queues, whose place a newer one took.
    public internal(set) var coalesced: UInt64 = 0
    /// Posts that waited in their posters' queues when an earlier process ended that could not keep them.
    public internal(set) var lostPosts: UInt64 = 0
    /// Notifications that wait for a client.
    public internal(set) var queued: UInt64 = 0
    /// What those count against the limits, in bytes.
    public internal(set) var queuedBytes: UInt64 = 0
    /// The state of minimum intervals, in bytes (R5).
    public internal(set) var intervalBytes: UInt64 = 0
    /// Posts that wait in the queues of their posters.
    public internal(set) var queuedPosts: UInt64 = 0
    /// What those count against the limits, in bytes.
    public internal(set) var queuedPostBytes: UInt64 = 0
    /// What is on its way to connections and not confirmed, in bytes.
    public internal(set) var inFlightBytes: UInt64 = 0
    /// Answers that are kept for callers that do not read, in bytes.
    public internal(set) var answerBytes: UInt64 = 0
    /// Calls that wait to be served, in bytes.
    public internal(set) var waitingCallBytes: UInt64 = 0
    /// Values that are kept.
    public internal(set) var retained: UInt64 = 0
    /// What those count against the limits, in bytes.
    public internal(set) var retainedBytes: UInt64 = 0
    /// Posts that were to be kept, and found no room when they came out of their posters' queues.
    public internal(set) var unretained: UInt64 = 0
    /// Values of connections that have left, which were removed to make room for others.
    public internal(set) var displaced: UInt64 = 0
    /// Notifications whose time was over before somebody had got them, and values whose time was over.
    public internal(set) var expired: UInt64 = 0
    public internal(set) var clients: UInt64 = 0
    public internal(set) var observers: UInt64 = 0
    /// Their registrations, as they count against the limits, in bytes.
    public internal(set) var observerBytes: UInt64 = 0
    /// Everything together, as it counts against the limits, in bytes.
    public internal(set) var memoryBytes: UInt64 = 0
}
