// SPDX-License-Identifier: Apache-2.0
/// A process table that does not read again what it has read a moment ago: a program may open thousands of connections at
/// once, and of each the same is asked several times.
///
/// Only answers that the kernel gave at once are remembered, and only as long as the same process has the id, which is looked
/// up again and again. Threads: one at a time.
package final class RecentProcesses: ProcessTable {
    package typealias Instant = SuspendingClock.Instant

    private struct Known {
        let identity: ProcessIdentity
        let since: Instant
        /// When it was seen last that the process has the id still.
        var seen: Instant
        var name: String?
        var confinement: Confinement?
        var description: ProcessDescription?
        var facts: ProcessFacts?
    }

    /// A process may change its name, and enter a sandbox.
    private static let memory = Duration.milliseconds(100)
    /// The bus's answer is as old: an id that is given again so soon can't be told from the one before anyway.
    private static let leastTimeToReuse = Duration.milliseconds(1)
    private static let maxKnown = 64

    private let table: any ProcessTable
    private let time: () -> Instant
    private var known: [UInt32: Known] = [:]

    /// - Parameter time: the present.
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

    /// The facts that are known of the process that has this id; nil when there is none.
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
