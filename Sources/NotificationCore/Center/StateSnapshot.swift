// SPDX-License-Identifier: Apache-2.0
import Collections

/// All that has to survive the process, as it is at one moment (E3): the shortest list of changes that makes it, for a log
/// that is written anew part by part while the center goes on (E8).
///
/// To take one costs a little for each client, however much waits: what is large is shared with the center until that
/// changes it, which copies it once. It holds what it has not told yet.
///
/// Not thread-safe: it is used on the center's thread.
public struct StateSnapshot {
    struct OfClient {
        let name: ClientName
        let counts: ClientCounts
        /// All that it and others said, and that it has to be told.
        let state: [Change]
        let observers: [ObserverID: Registered]
        /// Nil when it is not remembered.
        let due: DeliveryQueue.Snapshot?
        /// Nil without queues.
        let waiting: DeliveryQueue.Snapshot?
        let loss: Change?
        let owed: OwedList
    }

    /// Those to come; the last is the next.
    private var clients: [OfClient]
    private var values: RetainedValues.Snapshot?
    private var posts: [PostingQueues.Snapshot]
    private var current: AnyIterator<Change>?

    init(clients: [OfClient], values: RetainedValues.Snapshot, posts: [PostingQueues.Snapshot]) {
        self.clients = clients.reversed()
        self.values = values
        self.posts = posts.reversed()
    }

    /// Tells the next changes.
    ///
    /// - Parameter most: of the changes.
    /// - Returns: whether there are more.
    public mutating func next(_ most: Int, _ body: (Change) -> Void) -> Bool {
        var left = most
        while left > 0 {
            if let change = current?.next() {
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

    private mutating func nextList() -> AnyIterator<Change>? {
        if let client = clients.popLast() { return AnyIterator(Self.changes(of: client).makeIterator()) }
        if let values = values.take() {
            return AnyIterator(values.all.lazy.map { .retained($0.notification, $0.retention) }.makeIterator())
        }
        return posts.popLast().map { posts in
            AnyIterator(posts.all.lazy.map { .postQueued(posts.poster, $0, coalescing: []) }.makeIterator())
        }
    }

    private static func changes(of client: OfClient) -> some Sequence<Change> {
        let name = client.name
        // In the order of registration, which is the order in which they match.
        let observers = client.observers.values.map(\.registration).sorted { $0.id < $1.id }
        let due = client.due?.due ?? []
        let queues: [any Sequence<Change>] = [
            [.client(name, client.counts)], observers.lazy.map(Change.observer), client.state,
            due.lazy.map { .queuedDue(name, $0.entry.notification, observers: $0.entry.observers.ids, $0.lane) },
            client.waiting.map { waiting in
                AnySequence(
                    waiting.held.lazy.map { entry in
                        .held(
                            name, entry.notification, observers: entry.observers.ids,
                            coalescing: entry.coalescing?.ids ?? [])
                    })
            } ?? AnySequence([]),
            (client.waiting?.delayed ?? []).lazy.map { .delayed(name, $0.notification, observers: $0.observers) },
            client.loss.map { [$0] } ?? [],
            client.owed.all.lazy.map { .owed(name, $0) },
        ]
        return queues.lazy.flatMap { AnySequence($0) }
    }
}

extension DistributedCenter {
    /// All that has to survive, as it is now.
    ///
    /// - Parameter hasQueues: whether with what waits for clients and in posters' queues.
    public func snapshot(withQueues hasQueues: Bool = true) -> StateSnapshot {
        defer { eventEnded() }
        meter.count(clients.count * 4)
        return StateSnapshot(
            clients: clients.values.map { snapshot(of: $0, withQueues: hasQueues) }, values: retained.snapshot,
            posts: hasQueues ? postingQueues.snapshots : [])
    }

    /// The same, told at once.
    public func forEachRememberedChange(_ body: (Change) -> Void) {
        var snapshot = snapshot()
        while snapshot.next(.max, body) {}
    }

    private func snapshot(of client: Client, withQueues hasQueues: Bool) -> StateSnapshot.OfClient {
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
        if client.isSuspensionOwed { state.append(.suspensionOwed(name, true)) }
        if let revocation = client.revocation {
            meter.count(revocation.observers.count)
            state.append(.observersRevoked(name, revocation.observers))
        }
        let waiting = hasQueues ? client.queue.snapshot : nil
        return StateSnapshot.OfClient(
            name: name, counts: client.counts, state: state, observers: client.observers,
            due: client.remembersDue ? waiting : nil, waiting: waiting,
            loss: client.unannounced.map {
                .unannouncedLoss(name, count: $0.count, observers: $0.observers, $0.reason)
            },
            owed: client.owed)
    }
}
