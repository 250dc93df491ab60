// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// The clients for which it is to be counted how much waits, where the log does not have that, or soon not any more.
struct UncountedClients {
    /// Those for whom it may have changed.
    private var touched: Set<ClientName> = []
    /// Those for whom it was not counted yet.
    private var others: [ClientName] = []
    /// Each is a system call.
    private static let maxAtOnce = 512

    /// Whether only what changed is to be counted.
    var areOnlyTouched: Bool { others.isEmpty }

    mutating func touch(_ client: ClientName) { touched.insert(client) }

    /// All are to be counted, some at a time.
    mutating func begin(_ clients: some Sequence<ClientName>) { others = Array(clients) }

    mutating func remove(_ client: ClientName) { touched.remove(client) }

    /// Gives up what is kept of clients that are gone (E8).
    mutating func releaseRoom() { touched.releaseRoom() }

    /// None is any more.
    mutating func removeAll() { self = UncountedClients() }

    /// Takes out those to be counted now.
    mutating func next() -> Set<ClientName> {
        defer {
            touched.removeAll(keepingCapacity: true)
            others.removeLast(min(others.count, Self.maxAtOnce))
        }
        return touched.union(others.suffix(Self.maxAtOnce))
    }
}
