// SPDX-License-Identifier: Apache-2.0
/// A stopwatch for the time budget of one run of an action, its *share* of a scheduling cycle (T3). The loop's sources
/// and the delivery queues ask ``hasTime()`` between two notifications.
///
/// The budget is processor time of the thread, so that a busy machine does not reduce it. An action that waits, for
/// example for a disk, delays other sources without using processor time. Therefore the share also ends after
/// ``standardMaxTime`` of elapsed time.
///
/// Reading the processor time costs a system call; reading the elapsed time does not. Therefore the meter first reads
/// the processor time after a quarter of the budget has elapsed. Without a reading at the beginning it can't know the
/// processor time of this first part. It counts the elapsed time of the part instead, which is at least as long. It
/// reads again at the earliest time when the remaining budget can be used up.
package struct ShareMeter {
    /// The maximum elapsed time, in nanoseconds: half of the time between two frames of a display.
    static let standardMaxTime: Int64 = 8_000_000

    /// The budget of all deliveries to one thread in a cycle of its loop: 2 ms, in nanoseconds.
    package static let share: Int64 = 2_000_000

    private let clock: ShareClock
    /// The budget, in nanoseconds of processor time.
    private let limit: Int64
    /// The maximum elapsed time, in nanoseconds.
    private let maxTime: Int64
    /// The elapsed-time clock at the beginning of the share.
    private let began: Int64
    /// The first reading of the thread's processor time; nil before it.
    private var first: ShareClock.Reading?
    /// The time of the elapsed-time clock before which the share can't be used up, so that ``hasTime()`` reads no other
    /// clock.
    private(set) var nextReading: Int64

    /// Begins a share.
    ///
    /// - Parameters:
    ///   - limit: the share, in nanoseconds of the thread's processor time.
    ///   - maxTime: the maximum elapsed time, in nanoseconds.
    package init(_ clock: ShareClock = .own, limit: Int64 = share, maxTime: Int64 = standardMaxTime) {
        self.clock = clock
        self.limit = limit
        self.maxTime = maxTime
        began = clock.time()
        nextReading = began + limit / 4
    }

    /// Whether the share is not used up. Call it on the thread that began the share.
    package mutating func hasTime() -> Bool {
        let time = clock.time()
        guard time >= nextReading else { return true }
        guard time - began < maxTime else { return false }
        if first == nil { first = ShareClock.Reading(time: time, threadTime: clock.threadTime()) }
        let left = limit - used(at: time)
        // Processor time is never faster than elapsed time, so the budget lasts until then at least.
        nextReading = min(time + left, began + maxTime)
        return left > 0
    }

    /// The processor time used until now, in nanoseconds; at least the whole budget if the maximum elapsed time has
    /// passed.
    package var used: Int64 {
        let time = clock.time()
        let used = used(at: time)
        return time - began < maxTime ? used : max(used, limit)
    }

    private func used(at time: Int64) -> Int64 {
        guard let first else { return time - began }
        return first.time - began + clock.threadTime() - first.threadTime
    }
}

/// The two clocks of a ``ShareMeter``: elapsed time, and processor time of the thread.
package struct ShareClock: Sendable {
    struct Reading {
        let time: Int64
        let threadTime: Int64
    }

    /// The elapsed time, in nanoseconds; it also advances while the thread waits.
    let time: @Sendable () -> Int64
    /// The processor time of the calling thread, in nanoseconds.
    let threadTime: @Sendable () -> Int64

    /// The clocks of the machine.
    package static let own = ShareClock(time: SteadyClock.nanoseconds, threadTime: ThreadClock.nanoseconds)

    /// Creates both clocks from one clock; for tests.
    package init(_ clock: @escaping @Sendable () -> Int64) { (time, threadTime) = (clock, clock) }

    private init(time: @escaping @Sendable () -> Int64, threadTime: @escaping @Sendable () -> Int64) {
        self.time = time
        self.threadTime = threadTime
    }
}
