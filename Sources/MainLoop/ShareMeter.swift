// SPDX-License-Identifier: Apache-2.0
/// How much of its share of a turn somebody has used (T3): in the time that its thread has had of a processor, so that on a
/// busy machine nobody's share is smaller.
///
/// An action that waits in its share, for a disk say, holds up the others without using a processor. Its share is over as well
/// when ``standardMostTime`` has passed.
///
/// The thread's time costs a system call. It is read when a quarter of the share is over, and the time until then counts as used;
/// and again when the rest may be used up.
package struct ShareMeter {
    /// The maximum that passes, in nanoseconds: half of the time between two pictures.
    static let standardMostTime: Int64 = 8_000_000

    /// The budget of all deliveries to one thread in a turn, in nanoseconds.
    package static let share: Int64 = 2_000_000

    private let clock: ShareClock
    private let limit: Int64
    private let maxTime: Int64
    private let began: Int64
    /// When the thread's time was looked at first; nil for not yet.
    private var first: ShareClock.Reading?
    /// Until then, by the clock that goes on, there is time.
    private(set) var nextLook: Int64

    /// Begins.
    ///
    /// - Parameters:
    ///   - limit: the share, in nanoseconds of the thread.
    ///   - mostTime: the maximum that passes, in nanoseconds.
    package init(_ clock: ShareClock = .own, limit: Int64 = share, maxTime: Int64 = standardMostTime) {
        self.clock = clock
        self.limit = limit
        self.maxTime = maxTime
        began = clock.time()
        nextLook = began + limit / 4
    }

    /// Whether the share is not used up. To be asked on the thread that began.
    package mutating func hasTime() -> Bool {
        let time = clock.time()
        guard time >= nextLook else { return true }
        guard time - began < maxTime else { return false }
        if first == nil { first = ShareClock.Reading(time: time, threadTime: clock.threadTime()) }
        let left = limit - used(at: time)
        // No later than the end of what may pass.
        nextLook = min(time + left, began + maxTime)
        return left > 0
    }

    /// The time used until now, in nanoseconds of the thread; the whole share, when the maximum has passed.
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

    /// Goes on whatever happens, in nanoseconds.
    let time: @Sendable () -> Int64
    /// The time that the calling thread has had of a processor, in nanoseconds.
    let threadTime: @Sendable () -> Int64

    /// That of the machine.
    package static let own = ShareClock(time: SteadyClock.nanoseconds, threadTime: ThreadClock.nanoseconds)

    /// One clock as both: for tests.
    package init(_ clock: @escaping @Sendable () -> Int64) { (time, threadTime) = (clock, clock) }

    private init(time: @escaping @Sendable () -> Int64, threadTime: @escaping @Sendable () -> Int64) {
        self.time = time
        self.threadTime = threadTime
    }
}
