// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The bounded buffer of a delivery queue: jobs that wait for a thread, in one order, each with the run-loop modes in
/// which it may run (T2). All queues of this module use it; each decides when and where the jobs run.
///
/// Limits are a number of entries and of bytes. When a limit is reached, the oldest entries are discarded. An entry
/// that alone exceeds the limit of bytes is itself discarded.
///
/// A value type, not thread-safe by itself: each queue has a lock around it. Discarded entries are returned to the
/// caller, which releases them after unlocking, because their release may run other code.
struct Backlog<Job: Sendable>: Sendable {
    struct Entry: Sendable {
        let job: Job
        /// The memory of this entry alone, in bytes, without the payload.
        let byteCount: Int
        let payload: DeliveryQueue.Payload?
    }

    /// The effects of an append.
    struct Outcome: Sendable {
        /// The number of lost entries, including the appended one if it was lost.
        var lost = 0
        /// Whether the caller must wake the thread that runs the jobs.
        var mustWakeTarget = false
        /// The entries that were discarded to free space.
        var dropped: [Entry] = []
    }

    private let limits: DeliveryQueue.Limits
    private var lanes = ModeLanes<Entry>()
    /// The memory of the waiting entries, in bytes.
    private(set) var byteCount = 0
    /// The number of lost entries since creation.
    private(set) var lost: UInt64 = 0
    /// Whether the target's thread was woken and has not begun to drain since. Then another wake-up is unnecessary,
    /// unless the target's mode allows none of the waiting entries (``ModeLanes/needsWakeUp(_:)``).
    var isAwake = false
    /// Whether ``close()`` was called.
    private(set) var isClosed = false

    init(_ limits: DeliveryQueue.Limits) {
        self.limits = limits
    }

    var count: Int { lanes.count }

    /// The number of lanes, one for each set of modes with entries.
    var laneCount: Int { lanes.laneCount }

    // MARK: Appending

    /// Appends a job. After ``close()`` it is lost.
    ///
    /// - Parameters:
    ///   - byteCount: the memory that the job keeps, in bytes, without the payload.
    ///   - payload: the memory that the job shares with other entries of this queue.
    ///   - modes: the modes in which the job may run.
    mutating func append(
        _ job: Job, byteCount: Int, payload: DeliveryQueue.Payload? = nil, in modes: ModeSet = .ofCommon
    ) -> Outcome {
        var outcome = Outcome()
        // A job that alone exceeds the limit must not displace the others.
        guard !isClosed, byteCount + (payload?.byteCount ?? 0) <= limits.byteCount else {
            lost += 1
            outcome.lost = 1
            return outcome
        }
        let entry = Entry(job: job, byteCount: byteCount, payload: payload)
        let needsWakeUp = lanes.needsWakeUp(modes)
        charge(entry)
        while lanes.count >= limits.count || self.byteCount > limits.byteCount, let oldest = lanes.popOldest() {
            release(oldest)
            outcome.dropped.append(oldest)
        }
        lanes.append(entry, in: modes)
        outcome.lost = outcome.dropped.count
        lost += UInt64(outcome.lost)
        outcome.mustWakeTarget = mustWake() || needsWakeUp
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

    /// Adds the memory of an entry; a shared payload counts once.
    private mutating func charge(_ entry: Entry) {
        byteCount += entry.byteCount
        guard let payload = entry.payload else { return }
        if payload.holders == 0 { byteCount += payload.byteCount }
        payload.holders += 1
    }

    /// Subtracts the memory of an entry; a shared payload counts until its last entry.
    private mutating func release(_ entry: Entry) {
        byteCount -= entry.byteCount
        guard let payload = entry.payload else { return }
        payload.holders -= 1
        if payload.holders == 0 { byteCount -= payload.byteCount }
    }
}

extension DeliveryQueue {
    /// Memory that several entries of one queue share, such as a notification for several observers. It counts once
    /// toward the limit, as long as any of these entries waits.
    package final class Payload: @unchecked Sendable {
        // Sendable: the mutable state is accessed only under the lock of the one queue that it is for.
        fileprivate let byteCount: Int
        /// The number of waiting entries with this payload.
        fileprivate var holders = 0

        package init(byteCount: Int) {
            self.byteCount = byteCount
        }
    }
}
