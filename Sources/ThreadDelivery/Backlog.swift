// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// What waits to run elsewhere: in one order, each for modes of its own, and bounded (T2). Where there is no room the
/// oldest goes; what is larger than all the room there is goes itself.
///
/// It is what all queues of this module keep; who empties it, and when, is theirs.
///
/// A value type; not thread-safe by itself. What it lets go of it hands out, so that it ends with no lock held: it may
/// run code of its own then.
struct Backlog<Job: Sendable>: Sendable {
    struct Entry: Sendable {
        let job: Job
        let byteCount: Int
        let payload: DeliveryQueue.Payload?
    }

    /// What becomes of a job that is appended, and of others by it.
    struct Outcome: Sendable {
        /// How many were lost, this one included.
        var lost = 0
        /// Whether the caller has to wake the target.
        var shallWake = false
        /// What had to make room.
        var dropped: [Entry] = []
    }

    private let limits: DeliveryQueue.Limits
    private var lanes = ModeLanes<Entry>()
    private(set) var byteCount = 0
    private(set) var lost: UInt64 = 0
    /// Whether the target was woken and did not begin to drain since. A loop may be asleep all the same, over what its
    /// mode does not allow.
    var isAwake = false
    private(set) var isClosed = false

    init(_ limits: DeliveryQueue.Limits) {
        self.limits = limits
    }

    var count: Int { lanes.count }

    /// For how many sets of modes something waits.
    var laneCount: Int { lanes.laneCount }

    // MARK: Putting in

    /// Puts a job behind all others. After ``close()`` it is lost.
    ///
    /// - Parameters:
    ///   - byteCount: how much memory it keeps, beside the payload.
    ///   - payload: what it keeps together with others that wait here.
    mutating func append(
        _ job: Job, byteCount: Int, payload: DeliveryQueue.Payload? = nil, in modes: ModeSet = .ofCommon
    ) -> Outcome {
        var outcome = Outcome()
        // What is more than all the room there is takes nobody else's.
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

    /// Whether the target has to be woken for what waits; the caller then does.
    mutating func mustWake() -> Bool {
        guard !isAwake, !lanes.isEmpty else { return false }
        isAwake = true
        return true
    }

    // MARK: Taking out

    /// Takes out the first; with a context's modes given, the first that these allow.
    mutating func next(in modes: ContextModes? = nil) -> Job? {
        let entry = if let modes { lanes.popFirst(in: modes) } else { lanes.popOldest() }
        guard let entry else { return nil }
        release(entry)
        return entry.job
    }

    /// Whether anything may be taken out in the context's mode.
    mutating func hasAllowed(in modes: ContextModes) -> Bool {
        lanes.hasAllowed(in: modes)
    }

    /// Lets go of all, which is lost, as is what comes from now on.
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
    /// Memory that several of what waits in one queue keep together: counted once, from the first to the last.
    package final class Payload: @unchecked Sendable {
        // Sendable: what changes is touched under the lock of the one queue that it is for.
        fileprivate let byteCount: Int
        fileprivate var holders = 0

        package init(byteCount: Int) {
            self.byteCount = byteCount
        }
    }
}
