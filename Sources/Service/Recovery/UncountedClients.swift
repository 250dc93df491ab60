// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// The clients whose queue lengths are to be counted, because the log has no queues, or the next log will have none.
struct UncountedClients {
    /// The clients whose queues may have changed.
    private var touched: Set<ClientName> = []
    /// The clients that have not been counted.
    private var others: [ClientName] = []
    /// The maximum number of clients that are counted at a time, because each may take a system call.
    private static let maxAtOnce = 512

    /// Whether every client has been counted once, so that only changed queues are left.
    var areOnlyTouched: Bool { others.isEmpty }

    mutating func touch(_ client: ClientName) { touched.insert(client) }

    /// Marks all clients as uncounted. They are counted some at a time.
    mutating func begin(_ clients: some Sequence<ClientName>) { others = Array(clients) }

    mutating func remove(_ client: ClientName) { touched.remove(client) }

    /// Releases the memory of clients that are gone (E8).
    mutating func releaseMemory() { touched.releaseMemory() }

    /// Ends the counting.
    mutating func removeAll() { self = UncountedClients() }

    /// Removes and returns the clients to be counted now.
    mutating func next() -> Set<ClientName> {
        defer {
            touched.removeAll(keepingCapacity: true)
            others.removeLast(min(others.count, Self.maxAtOnce))
        }
        return touched.union(others.suffix(Self.maxAtOnce))
    }
}
