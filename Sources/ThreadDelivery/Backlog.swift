// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The work that waits to run elsewhere: in one order, each entry for its own modes, and bounded (T2). When the space
/// is used up, the oldest entries are discarded. An entry that is larger than the whole space is itself discarded.
///
/// All queues of this module use it; each queue decides when and where it is emptied.
///
/// A value type; not thread-safe by itself. It returns discarded entries to its caller, so that they are released with
/// no lock held: their release may run code of its own.
struct Backlog<Job: Sendable>: Sendable {
    struct Entry: Sendable {
        let job: Job
        let byteCount: Int
        let payload: DeliveryQueue.Payload?
    }

    /// The effects of an append.
    struct Outcome: Sendable {
        /// The number of lost entries, including the appended one if it was lost.
        var lost = 0
        /// Whether the caller has to wake the target.
        var shallWake = false
        /// The entries that were discarded to free space.
        var dropped: [Entry] = []
    }

    private let limits: DeliveryQueue.Limits
    private var lanes = ModeLanes<Entry>()
    private(set) var byteCount = 0
    private(set) var lost: UInt64 = 0
    /// Whether the target was woken and has not begun to drain since. Its loop may sleep nevertheless, because its mode
    /// allows none of the waiting entries.
    var isAwake = false
    private(set) var isClosed = false

    init(_ limits: DeliveryQueue.Limits) {
        self.limits = limits
    }

    var count: Int { lanes.count }

    /// The number of sets of modes with entries.
    var laneCount: Int { lanes.laneCount }

    // MARK: Appending

    /// Appends a job. After ``close()`` it is lost.
    ///
    /// - Parameters:
    ///   - byteCount: the memory that it keeps, beside the payload.
    ///   - payload: the memory that it shares with other entries of this queue.
    mutating func append(
        _ job: Job, byteCount: Int, payload: DeliveryQueue.Payload? = nil, in modes: ModeSet = .ofCommon
    ) -> Outcome {
        var outcome = Outcome()
        // A job that is larger than the whole space displaces no others.
        guard !isClosed, byteCount + (payload?.byteCount ?? 0) <= limits.byteCount else {
            lost += 1
            outcome.lost = 1
            return outcome
        }
        let entry = Entry(job: job, byteCount: byteCount, payload: payload)
        let isUnannounced = lanes.isUnannounced(modes)
        charge(entry)
        while lanes.count >= limits.count || self.byteCount > limits.byteCount, let oldest = lanes.popOldest() {
            release(oldest)
            outcome.dropped.append(oldest)
        }
        lanes.append(entry, in: modes)
        outcome.lost = outcome.dropped.count
        lost += UInt64(outcome.lost)
        outcome.shallWake = mustWake() || isUnannounced
        return outcome
    }

    /// Whether the caller must wake the target for the waiting entries. The target then counts as awake.
    mutating func mustWake() -> Bool {
        guard !isAwake, !lanes.isEmpty else { return false }
        isAwake = true
        return true
    }

    // MARK: Removal

    /// Removes the first job; with a context's modes, the first job that these allow.
    mutating func next(in modes: ContextModes? = nil) -> Job? {
        let entry = if let modes { lanes.popFirst(in: modes) } else { lanes.popOldest() }
        guard let entry else { return nil }
        release(entry)
        return entry.job
    }

    /// Whether the context's mode allows any waiting job.
    mutating func hasAllowed(in modes: ContextModes) -> Bool {
        lanes.hasAllowed(in: modes)
    }

    /// Discards all entries and counts them as lost, like all later ones.
    mutating func close() -> [Entry] {
        isClosed = true
        byteCount = 0
        let dropped = lanes.removeAll()
        lost += UInt64(dropped.count)
        return dropped
    }

    // MARK: Memory

    private mutating func charge(_ entry: Entry) {
        byteCount += entry.byteCount
        guard let payload = entry.payload else { return }
        if payload.holders == 0 { byteCount += payload.byteCount }
        payload.holders += 1
    }

    private mutating func release(_ entry: Entry) {
        byteCount -= entry.byteCount
        guard let payload = entry.payload else { return }
        payload.holders -= 1
        if payload.holders == 0 { byteCount -= payload.byteCount }
    }
}

extension DeliveryQueue {
    /// Memory that several entries of one queue share: it counts once, from the first entry to the last.
    package final class Payload: @unchecked Sendable {
        // Sendable: the mutable state is accessed only under the lock of the one queue that it is for.
        fileprivate let byteCount: Int
        fileprivate var holders = 0

        package init(byteCount: Int) {
            self.byteCount = byteCount
        }
    }
}
