// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// A fair queue: one queue for each caller, served in rotation when there is more work than time (E4). ``CallQueue``
/// uses it with accounts as callers.
///
/// Time is divided into slots of 20 ms. A part of each slot is for items that are served at once (``Pressure``), and is
/// shared equally among the callers of a slot. A caller within its share is served at once
/// (``mayServe(_:at:most:under:)``). Beyond that share its items wait in its own queue, in their order, and all its
/// later items wait behind them. The queues are served in rotation with 500 µs for each (``popNext()``).
///
/// All times are passed in; the type has no clock.
struct FairQueue<Caller: Hashable, Item> {
    typealias Instant = SuspendingClock.Instant

    /// The queue of one caller, and the use of its share. Properties that every call uses are without Swift's run-time
    /// check of overlapping accesses in release builds.
    private final class CallerQueue {
        #if !DEBUG && !CARILLON_METER
            @exclusivity(unchecked)
        #endif
        var items = Deque<Item>()
        /// The number of the slot that `used`, `share` and `count` are about.
        #if !DEBUG && !CARILLON_METER
            @exclusivity(unchecked)
        #endif
        var slot: UInt64 = 0
        /// The time that serving the caller at once has taken in that slot, with an overrun of earlier slots.
        #if !DEBUG && !CARILLON_METER
            @exclusivity(unchecked)
        #endif
        var used = Duration.zero
        /// The caller's share of that slot.
        #if !DEBUG && !CARILLON_METER
            @exclusivity(unchecked)
        #endif
        var share = Duration.zero
        /// The number of the caller's items in that slot.
        #if !DEBUG && !CARILLON_METER
            @exclusivity(unchecked)
        #endif
        var count = 0
    }

    /// The length of a slot.
    private static var slotTime: Duration { .milliseconds(20) }
    /// The work that competes with serving.
    enum Pressure {
        case none
        /// Many bytes wait to be written, and new signals would wait behind them.
        case writing
        /// Reading is behind, and gets nearly all of the time.
        case reading

        /// The time in a slot for serving at once, for all callers together. The remaining time is for waiting items
        /// and for reading.
        fileprivate var timeAtOnce: Duration {
            switch self {
            case .none: .milliseconds(10)
            case .writing: .milliseconds(4)
            case .reading: .milliseconds(1)
            }
        }
    }

    /// The number of slots after which an overrun of a share is forgiven: 1 s.
    private static var maxSlots: UInt64 { 50 }
    /// The minimum share of a caller, even if all shares together then exceed the slot's time.
    private static var leastTime: Duration { .microseconds(200) }
    /// The time for waiting items of one caller before the rotation goes on to the next caller.
    private static var turnTime: Duration { .microseconds(500) }

    /// The queues of all known callers, also empty ones.
    private var queues: [Caller: CallerQueue] = [:]
    /// The queue that was looked up last, as a cache.
    private var last: (caller: Caller, queue: CallerQueue)?
    /// The queues with waiting items, in the order of rotation.
    private var rotation = Deque<CallerQueue>()
    /// The number of the current slot, and its beginning.
    private var slot: UInt64 = 1
    private var slotStart: Instant?
    /// The number of callers in this slot.
    private var callers = 0
    /// The number of callers in the previous slot, by which the shares of this slot are computed; at least 1.
    private var callersBefore = 1
    /// The time that the first queue of the rotation has used of its ``turnTime``.
    private var turnUsed = Duration.zero
    /// The queue whose item is being served.
    private var current: CallerQueue?
    /// The number of waiting items.
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }

    /// Releases the memory of callers that were forgotten (E8).
    mutating func releaseMemory() { queues.releaseMemory() }

    /// Whether items of the caller wait.
    func isWaiting(_ caller: Caller) -> Bool { queues[caller]?.items.isEmpty == false }

    /// Counts a new item of the caller, and returns whether it may be served at once. If it is served, call
    /// ``note(_:of:more:)`` afterwards; otherwise call ``append(_:of:)``.
    ///
    /// - Parameters:
    ///   - most: the maximum number of the caller's items in a slot, in addition to its time share; nil for any number.
    ///   - pressure: the work that competes with serving.
    mutating func mayServe(_ caller: Caller, at now: Instant, most: Int?, under pressure: Pressure = .none) -> Bool {
        begin(at: now)
        let queue = queue(of: caller)
        guard queue.items.isEmpty else { return false }
        let share = max(pressure.timeAtOnce / callersBefore, Self.leastTime)
        if queue.slot != slot {
            // The use beyond the share of the last slot is carried over. Each slot since then has paid for one share of
            // it.
            queue.used = max(.zero, queue.used - queue.share)
            if queue.used > .zero {
                // The remaining overrun is bounded by the shares of the remaining ``maxSlots``, so that it ends within
                // them.
                let passed = Int(min(slot - queue.slot, Self.maxSlots)) - 1
                queue.used = min(max(.zero, queue.used - share * passed), share * (Int(Self.maxSlots) - passed))
            }
            (queue.slot, queue.count, queue.share) = (slot, 0, share)
            callers += 1
        }
        queue.count += 1
        return queue.used < share && queue.count <= most ?? .max
    }

    /// Charges the caller for an item that ``mayServe(_:at:most:under:)`` allowed.
    ///
    /// - Parameters:
    ///   - time: the time that serving took.
    ///   - more: the number of items that were served with it, such as further posts of one call.
    mutating func note(_ time: Duration, of caller: Caller, more: Int = 0) {
        guard let queue = last?.caller == caller ? last?.queue : queues[caller] else { return }
        queue.used += time
        queue.count += more
    }

    /// Appends an item to the caller's queue.
    mutating func append(_ item: Item, of caller: Caller) {
        let queue = queue(of: caller)
        if queue.items.isEmpty { rotation.append(queue) }
        queue.items.append(item)
        count += 1
    }

    /// Removes and returns the item to serve next: the oldest of the first queue in the rotation. Call
    /// ``chargeWaiting(_:)`` when it has been served.
    mutating func popNext() -> Item? {
        guard let queue = rotation.first, let item = queue.items.popFirst() else { return nil }
        count -= 1
        current = queue
        if queue.items.isEmpty { rotation.popFirst() }
        return item
    }

    /// Inserts an item at the front of the caller's queue, such as the remainder of an item that ``popNext()``
    /// returned. The queue being served keeps its position in the rotation.
    mutating func prepend(_ item: Item, of caller: Caller) {
        let queue = queue(of: caller)
        if queue.items.isEmpty {
            if queue === current { rotation.prepend(queue) } else { rotation.append(queue) }
        }
        queue.items.prepend(item)
        count += 1
    }

    /// Charges the time for serving an item that ``popNext()`` returned. When its queue has left the rotation, because
    /// it is empty, or has used its ``turnTime``, the next queue follows.
    mutating func chargeWaiting(_ time: Duration) {
        turnUsed += time
        let isItsTurn = rotation.first === current
        current = nil
        guard !isItsTurn || turnUsed >= Self.turnTime else { return }
        turnUsed = .zero
        if isItsTurn, let queue = rotation.popFirst() { rotation.append(queue) }
    }

    /// Begins a new slot, if the current one has ended.
    private mutating func begin(at now: Instant) {
        if let slotStart, now - slotStart < Self.slotTime { return }
        let slots = slotStart.map { Int(min((now - $0) / Self.slotTime, Double(Self.maxSlots))) } ?? 1
        slotStart = now
        slot += UInt64(slots)
        callersBefore = max(1, callers)
        callers = 0
        // Callers without waiting items are forgotten, with their overruns, when there are many of them.
        if queues.count > 2 * (callersBefore + rotation.count) + 64 {
            queues = queues.filter { !$0.value.items.isEmpty }
            last = nil
        }
    }

    /// Returns the queue of a caller, and makes one for a new caller.
    private mutating func queue(of caller: Caller) -> CallerQueue {
        if let last, last.caller == caller { return last.queue }
        if let queue = queues[caller] {
            last = (caller, queue)
            return queue
        }
        let queue = CallerQueue()
        queues[caller] = queue
        last = (caller, queue)
        return queue
    }
}
