// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// The clients whose queue lengths are still to be written into the counters (``RecoveryCounters``).
///
/// ``RecoveryStore`` writes these lengths while its log has no queues, or while it writes a log without queues. At
/// first all clients are written, some in each event. Afterwards only clients whose queues have changed are.
struct UncountedClients {
    /// The clients whose queues may have changed since they were written.
    private var touched: Set<ClientName> = []
    /// The clients that were not written since ``begin(_:)``.
    private var others: [ClientName] = []
    /// The maximum number of clients of ``others`` in one event, because each may take a system call.
    private static let maxAtOnce = 512

    /// Whether each client has been written once, so that at most changed queues are left.
    var areAllCounted: Bool { others.isEmpty }

    /// Notes that a client's queue may have changed.
    mutating func touch(_ client: ClientName) { touched.insert(client) }

    /// Begins with these clients.
    mutating func begin(_ clients: some Sequence<ClientName>) { others = Array(clients) }

    /// Removes a client that has left the bus. It may stay in ``others``, because the store skips unknown clients.
    mutating func remove(_ client: ClientName) { touched.remove(client) }

    /// Releases the memory of clients that are gone (E8).
    mutating func releaseMemory() { touched.releaseMemory() }

    /// Forgets all clients, because the log has queues again or the store is suspended.
    mutating func removeAll() { self = UncountedClients() }

    /// Removes and returns the clients to be written now: all of ``touched``, and some of ``others``.
    mutating func next() -> Set<ClientName> {
        defer {
            touched.removeAll(keepingCapacity: true)
            others.removeLast(min(others.count, Self.maxAtOnce))
        }
        return touched.union(others.suffix(Self.maxAtOnce))
    }
}
