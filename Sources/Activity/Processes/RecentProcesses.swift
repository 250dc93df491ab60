// SPDX-License-Identifier: Apache-2.0
/// A cache in front of a process table, with a lifetime of 100 ms. A program may open thousands of connections at once,
/// and the service asks for the same process for each of them.
///
/// Only answers that need no blocking query are cached, and only while the same process has the id; this is verified at
/// most every millisecond. Threads: one at a time.
package final class RecentProcesses: ProcessTable {
    package typealias Instant = SuspendingClock.Instant

    /// A cached process. A field is nil until it was asked for.
    private struct Known {
        let identity: ProcessIdentity
        /// The creation of this entry.
        let since: Instant
        /// The time of the last verification that the process still has the id.
        var seen: Instant
        var name: String?
        var confinement: Confinement?
        var description: ProcessDescription?
        var facts: ProcessFacts?
    }

    /// The lifetime of an entry. It is short, because a process may change its name and enter a sandbox.
    private static let lifetime = Duration.milliseconds(100)
    /// The minimum time between two verifications that the process still has its id. The id itself, which the bus
    /// reported, is about as old, so an id reused within this time can't be detected anyway.
    private static let leastTimeToReuse = Duration.milliseconds(1)
    /// The maximum number of entries; a full cache is cleared.
    private static let maxKnown = 64

    private let table: any ProcessTable
    private let time: () -> Instant
    private var known: [UInt32: Known] = [:]

    /// - Parameters:
    ///   - table: The table whose answers are cached.
    ///   - time: Returns the current time.
    package init(of table: any ProcessTable, time: @escaping () -> Instant = { .now }) {
        self.table = table
        self.time = time
    }

    package func name(of processID: UInt32) -> String {
        cachedField(processID, \.name) { table.name(of: processID) } ?? ""
    }

    package func confinement(of processID: UInt32) -> Lookup<Confinement> {
        if let known = cachedEntry(processID)?.confinement { return .known(known) }
        let found = table.confinement(of: processID)
        if case .known(let confinement) = found, confinement != .unknown {
            known[processID]?.confinement = confinement
        }
        return found
    }

    package func description(of processID: UInt32, startedBy moment: UInt64) -> ProcessDescription? {
        guard let known = cachedEntry(processID), known.identity.start <= moment else { return nil }
        return cachedField(processID, \.description) { table.description(of: processID, startedBy: moment) }
    }

    package func facts(of processID: UInt32) -> Lookup<ProcessFacts?> {
        if let known = cachedEntry(processID)?.facts { return .known(known) }
        let found = table.facts(of: processID)
        if case .known(let facts) = found { known[processID]?.facts = facts }
        return found
    }

    package func environment(of processID: UInt32) -> Lookup<SessionEnvironment?> {
        table.environment(of: processID)
    }

    package func identity(of processID: UInt32) -> ProcessIdentity? { table.identity(of: processID) }

    package var now: UInt64 { table.now }

    /// Returns a field of the cached entry, and reads it from the table if it is not cached.
    private func cachedField<Value>(
        _ processID: UInt32, _ part: WritableKeyPath<Known, Value?>, read: () -> Value?
    ) -> Value? {
        if let value = cachedEntry(processID)?[keyPath: part] { return value }
        let value = read()
        known[processID]?[keyPath: part] = value
        return value
    }

    /// Returns the cached entry of the process with this id, and creates or renews it if needed; nil if there is no
    /// process.
    private func cachedEntry(_ processID: UInt32) -> Known? {
        let now = time()
        if let known = known[processID], now - known.seen < Self.leastTimeToReuse, now - known.since < Self.lifetime {
            return known
        }
        let identity = table.identity(of: processID)
        if let found = known[processID], found.identity == identity, now - found.since < Self.lifetime {
            known[processID]?.seen = now
            return found
        }
        if known.count >= Self.maxKnown { known.removeAll(keepingCapacity: true) }
        known[processID] = identity.map { Known(identity: $0, since: now, seen: now) }
        return known[processID]
    }
}
