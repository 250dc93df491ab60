// SPDX-License-Identifier: Apache-2.0
/// The meter of a share of a turn (T3). It measures the processor time of the thread, so that shares are not smaller on
/// a busy machine.
///
/// An action that waits in its share, for example for a disk, delays the others without using a processor. Therefore
/// its share also ends when ``standardMaxTime`` has passed.
///
/// Reading the thread's time costs a system call. The meter reads it when a quarter of the share has passed, and counts
/// the time until then as used. It reads it again when the rest may be used up.
package struct ShareMeter {
    /// The maximum elapsed time, in nanoseconds: half of the time between two frames of a display.
    static let standardMaxTime: Int64 = 8_000_000

    /// The budget of all deliveries to one thread in a turn, in nanoseconds.
    package static let share: Int64 = 2_000_000

    private let clock: ShareClock
    private let limit: Int64
    private let maxTime: Int64
    private let began: Int64
    /// The first reading of the thread's time; nil before it.
    private var first: ShareClock.Reading?
    /// The time of the steady clock until which the share is not used up.
    private(set) var nextLook: Int64

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
        nextLook = began + limit / 4
    }

    /// Whether the share is not used up. Call it on the thread that began the share.
    package mutating func hasTime() -> Bool {
        let time = clock.time()
        guard time >= nextLook else { return true }
        guard time - began < maxTime else { return false }
        if first == nil { first = ShareClock.Reading(time: time, threadTime: clock.threadTime()) }
        let left = limit - used(at: time)
        // The next reading is no later than the end of the maximum time.
        nextLook = min(time + left, began + maxTime)
        return left > 0
    }

    /// The time used until now, in nanoseconds of the thread's processor time; at least the whole share when the
    /// maximum has passed.
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

/// The clocks of a ``ShareMeter``.
package struct ShareClock: Sendable {
    struct Reading {
        let time: Int64
        let threadTime: Int64
    }

    /// The elapsed time, in nanoseconds; it always goes on.
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
