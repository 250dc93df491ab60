// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// A snapshot of all state that must survive the process (E3), as the shortest list of changes that restores it.
///
/// The recovery store rewrites its log from a snapshot, a slice at a time, while the center continues with other events
/// (E8). To take a snapshot costs a few steps for each client, with any number of waiting notifications: large parts
/// are shared with the center, and copied when the center first changes them. The snapshot releases each part once it
/// has returned the changes of it.
///
/// Not thread-safe: use it on the center's thread only.
public struct StateSnapshot {
    /// The snapshot of one client.
    struct ClientSnapshot {
        let name: ClientName
        let counts: ClientCounts
        /// Changes that restore the suspension, options, followed lists and revocations of the client.
        let state: [Change]
        let observers: [ObserverID: RegisteredObserver]
        /// The due notifications; nil when they are about to be sent and therefore not logged.
        let due: DeliveryQueue.Snapshot?
        /// The held and throttled notifications; nil in a snapshot without queues.
        let waiting: DeliveryQueue.Snapshot?
        /// The unreported loss of the client.
        let loss: Change?
        let replays: RetainedReplays
    }

    /// An iterator over a list of changes. It returns nil after the last change.
    private typealias List = () -> Change?

    /// The clients whose changes have not begun, in reverse order, so that the next one is removed from the end.
    private var clients: [ClientSnapshot]
    /// The retained values; nil once their changes have begun.
    private var values: RetainedValues.Snapshot?
    /// The posting queues whose changes have not begun, in reverse order.
    private var posts: [PostingQueues.Snapshot]
    private var excess: [Change]
    /// The lists of the present client that have not begun, in reverse order. Each closure makes its list.
    private var lists: [() -> List] = []
    /// The list whose changes are being returned.
    private var current: List?

    init(
        clients: [ClientSnapshot], values: RetainedValues.Snapshot, posts: [PostingQueues.Snapshot], excess: [Change]
    ) {
        self.clients = clients.reversed()
        self.values = values
        self.posts = posts.reversed()
        self.excess = excess
    }

    /// Calls `body` with the next changes.
    ///
    /// - Parameter most: the maximum number of changes.
    /// - Returns: whether there are more.
    public mutating func next(_ most: Int, _ body: (Change) -> Void) -> Bool {
        var left = most
        while left > 0 {
            if let change = current?() {
                body(change)
                left -= 1
            } else if let next = nextList() {
                current = next
            } else {
                current = nil
                return false
            }
        }
        return true
    }

    /// Returns the next list of changes: clients, then values, then queued posts, then the excess; nil at the end.
    private mutating func nextList() -> List? {
        if let list = lists.popLast() { return list() }
        if let client = clients.popLast() {
            lists = Self.lists(of: client).reversed()
            return lists.popLast()!()
        }
        if let values = values.take() {
            return Self.list(of: values.all) { .retained($0.notification, $0.retention) }
        }
        if let posts = posts.popLast() {
            return Self.list(of: posts.all) { .postQueued(posts.poster, $0, coalescing: []) }
        }
        guard !excess.isEmpty else { return nil }
        defer { excess = [] }
        return Self.list(of: excess) { $0 }
    }

    /// Returns the lists of a client's changes, in the order in which they must be restored. Each is made when it is
    /// needed.
    private static func lists(of client: ClientSnapshot) -> [() -> List] {
        let name = client.name
        return [
            { list(of: [.client(name, client.counts)]) { $0 } },
            {
                // In the order of registration, which is the order of matching.
                list(of: client.observers.values.map(\.registration).sorted { $0.id < $1.id }, Change.observer)
            },
            { list(of: client.state) { $0 } },
            {
                list(of: client.due?.due ?? []) {
                    .queuedDue(name, $0.entry.notification, observers: $0.entry.observers.ids, $0.lane)
                }
            },
            {
                guard let waiting = client.waiting else { return { nil } }
                return list(of: waiting.held) { entry in
                    .held(
                        name, entry.notification, observers: entry.observers.ids,
                        coalescing: entry.coalescing?.ids ?? [])
                }
            },
            {
                list(of: client.waiting?.throttled ?? []) { .throttled(name, $0.notification, observers: $0.observers) }
            },
            { list(of: client.loss.map { [$0] } ?? []) { $0 } },
            { list(of: client.replays.all) { .replays(name, $0) } },
        ]
    }

    private static func list<Elements: Sequence>(
        of elements: Elements, _ change: @escaping (Elements.Element) -> Change
    ) -> List {
        var elements = elements.makeIterator()
        return { elements.next().map(change) }
    }
}

extension DistributedCenter {
    /// Takes a snapshot of all state that must survive the process.
    ///
    /// - Parameter hasQueues: whether to include the queues of clients and posters. They are left out when the state
    ///   would exceed `state-bytes`.
    public func snapshot(withQueues hasQueues: Bool = true) -> StateSnapshot {
        defer { eventEnded() }
        meter.count(clients.count * 4)
        return StateSnapshot(
            clients: clients.values.map { snapshot(of: $0, withQueues: hasQueues) }, values: retained.snapshot,
            posts: hasQueues ? postingQueues.snapshots : [], excess: rememberedExcess)
    }

    /// Calls `body` with all changes of a snapshot with queues, without slices.
    public func forEachRememberedChange(_ body: (Change) -> Void) {
        var snapshot = snapshot()
        while snapshot.next(.max, body) {}
    }

    private func snapshot(of client: Client, withQueues hasQueues: Bool) -> StateSnapshot.ClientSnapshot {
        let name = client.name
        var state: [Change] = []
        if let isSuspended = client.explicitSuspension { state.append(.suspension(name, isSuspended)) }
        if let override = client.override { state.append(.suspensionOverridden(name, override.isSuspended)) }
        if interestFollowers.contains(client.number) { state.append(.interestFollowed(name)) }
        if valueFollowers.contains(client.number) { state.append(.valuesFollowed(name)) }
        if client.options != ClientOptions() { state.append(.options(name, client.options)) }
        if client.isSuspendedByActivity || client.wasSuspendedByActivity {
            state.append(.suspendedByActivity(name, true))
        }
        if client.suspensionNoticePending { state.append(.suspensionNoticePending(name, true)) }
        if let revocation = client.revocation {
            meter.count(revocation.observers.count)
            state.append(.observersRevoked(name, revocation.observers))
        }
        let waiting = hasQueues ? client.queue.snapshot : nil
        return StateSnapshot.ClientSnapshot(
            name: name, counts: client.announcedCounts, state: state, observers: client.observers,
            due: client.isDueLogged ? waiting : nil, waiting: waiting,
            loss: client.unreportedLoss.map {
                .unreportedLoss(name, count: $0.count, observers: $0.observers, $0.reason)
            },
            replays: client.replays)
    }
}
