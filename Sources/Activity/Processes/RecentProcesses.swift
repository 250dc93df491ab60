// SPDX-License-Identifier: Apache-2.0
/// A process table with a short-lived cache. A program may open thousands of connections at once, and each causes
/// several identical queries.
///
/// Only answers that the kernel returned at once are cached, and only while the same process has the id, which is
/// verified regularly. Threads: one at a time.
package final class RecentProcesses: ProcessTable {
    package typealias Instant = SuspendingClock.Instant

    private struct Known {
        let identity: ProcessIdentity
        let since: Instant
        /// The time of the last verification that the process still has the id.
        var seen: Instant
        var name: String?
        var confinement: Confinement?
        var description: ProcessDescription?
        var facts: ProcessFacts?
    }

    /// The lifetime of an entry. A process may change its name, and enter a sandbox.
    private static let memory = Duration.milliseconds(100)
    /// The minimum time between verifications. The bus's answer is as old, so an id that is reused within this time
    /// cannot be detected anyway.
    private static let leastTimeToReuse = Duration.milliseconds(1)
    private static let maxKnown = 64

    private let table: any ProcessTable
    private let time: () -> Instant
    private var known: [UInt32: Known] = [:]

    /// - Parameter time: Returns the current time.
    package init(of table: any ProcessTable, time: @escaping () -> Instant = { .now }) {
        self.table = table
        self.time = time
    }

    package func name(of processID: UInt32) -> String {
        remembered(processID, \.name) { table.name(of: processID) } ?? ""
    }

    package func confinement(of processID: UInt32) -> Lookup<Confinement> {
        if let known = know(processID)?.confinement { return .known(known) }
        let found = table.confinement(of: processID)
        if case .known(let confinement) = found, confinement != .unknown {
            known[processID]?.confinement = confinement
        }
        return found
    }

    package func description(of processID: UInt32, startedBy moment: UInt64) -> ProcessDescription? {
        guard let known = know(processID), known.identity.start <= moment else { return nil }
        return remembered(processID, \.description) { table.description(of: processID, startedBy: moment) }
    }

    package func facts(of processID: UInt32) -> Lookup<ProcessFacts?> {
        if let known = know(processID)?.facts { return .known(known) }
        let found = table.facts(of: processID)
        if case .known(let facts) = found { known[processID]?.facts = facts }
        return found
    }

    package func environment(of processID: UInt32) -> Lookup<SessionEnvironment?> {
        table.environment(of: processID)
    }

    package func identity(of processID: UInt32) -> ProcessIdentity? { table.identity(of: processID) }

    package var now: UInt64 { table.now }

    private func remembered<Value>(
        _ processID: UInt32, _ part: WritableKeyPath<Known, Value?>, read: () -> Value?
    ) -> Value? {
        if let value = know(processID)?[keyPath: part] { return value }
        let value = read()
        known[processID]?[keyPath: part] = value
        return value
    }

    /// Returns the cached entry of the process with this id; nil if there is no process.
    private func know(_ processID: UInt32) -> Known? {
        let now = time()
        if let known = known[processID], now - known.seen < Self.leastTimeToReuse, now - known.since < Self.memory {
            return known
        }
        let identity = table.identity(of: processID)
        if let found = known[processID], found.identity == identity, now - found.since < Self.memory {
            known[processID]?.seen = now
            return found
        }
        if known.count >= Self.maxKnown { known.removeAll(keepingCapacity: true) }
        known[processID] = identity.map { Known(identity: $0, since: now, seen: now) }
        return known[processID]
    }
}
