// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// A fair queue: one queue for each caller, served in rotation when there is more work than time (E4). ``CallQueue`` uses
/// it with accounts as callers.
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
    private final class Line {
        #if !DEBUG && !CARILLON_METER
            @exclusivity(unchecked)
        #endif
        var items = Deque<Item>()
        /// The number of the slot that `used`, `part` and `count` are about.
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
        var part = Duration.zero
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

        /// The time in a slot for serving at once, for all callers together. The remaining time is for waiting items and
        /// for reading.
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
    private var lines: [Caller: Line] = [:]
    /// The queue that was looked up last, as a cache.
    private var last: (caller: Caller, line: Line)?
    /// The queues with waiting items, in the order of rotation.
    private var turns = Deque<Line>()
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
    private var current: Line?
    /// The number of waiting items.
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }

    /// Releases the memory of callers that were forgotten (E8).
    mutating func releaseMemory() { lines.releaseMemory() }

    /// Whether items of the caller wait.
    func isWaiting(_ caller: Caller) -> Bool { lines[caller]?.items.isEmpty == false }

    /// Counts a new item of the caller, and returns whether it may be served at once. If it is served, call
    /// ``note(_:of:more:)`` afterwards; otherwise call ``append(_:of:)``.
    ///
    /// - Parameters:
    ///   - most: the maximum number of the caller's items in a slot, in addition to its time share; nil for any number.
    ///   - pressure: the work that competes with serving.
    mutating func mayServe(_ caller: Caller, at now: Instant, most: Int?, under pressure: Pressure = .none) -> Bool {
        begin(at: now)
        let line = line(of: caller)
        guard line.items.isEmpty else { return false }
        let part = max(pressure.timeAtOnce / callersBefore, Self.leastTime)
        if line.slot != slot {
            // The use beyond the share of the last slot is carried over. Each slot since then has paid for one share of it.
            line.used = max(.zero, line.used - line.part)
            if line.used > .zero {
                let passed = Int(min(slot - line.slot, Self.maxSlots)) - 1
                line.used = min(max(.zero, line.used - part * passed), part * (Int(Self.maxSlots) - passed))
            }
            (line.slot, line.count, line.part) = (slot, 0, part)
            callers += 1
        }
        line.count += 1
        return line.used < part && line.count <= most ?? .max
    }

    /// Charges the caller for an item that ``mayServe(_:at:most:under:)`` allowed.
    ///
    /// - Parameters:
    ///   - time: the time that serving took.
    ///   - more: the number of items that were served with it, such as further posts of one call.
    mutating func note(_ time: Duration, of caller: Caller, more: Int = 0) {
        guard let line = last?.caller == caller ? last?.line : lines[caller] else { return }
        line.used += time
        line.count += more
    }

    /// Appends an item to the caller's queue.
    mutating func append(_ item: Item, of caller: Caller) {
        let line = line(of: caller)
        if line.items.isEmpty { turns.append(line) }
        line.items.append(item)
        count += 1
    }

    /// Removes and returns the item to serve next: the oldest of the first queue in the rotation. Call ``noteTurn(_:)``
    /// when it has been served.
    mutating func popNext() -> Item? {
        guard let line = turns.first, let item = line.items.popFirst() else { return nil }
        count -= 1
        current = line
        if line.items.isEmpty { turns.popFirst() }
        return item
    }

    /// Inserts an item at the front of the caller's queue, such as the remainder of an item that ``popNext()`` returned.
    /// The queue being served keeps its position in the rotation.
    mutating func prepend(_ item: Item, of caller: Caller) {
        let line = line(of: caller)
        if line.items.isEmpty {
            if line === current { turns.prepend(line) } else { turns.append(line) }
        }
        line.items.prepend(item)
        count += 1
    }

    /// Charges the time for serving an item that ``popNext()`` returned. When its queue is empty or has used its
    /// ``turnTime``, the next queue follows.
    mutating func noteTurn(_ time: Duration) {
        turnUsed += time
        let isItsTurn = turns.first === current
        current = nil
        guard !isItsTurn || turnUsed >= Self.turnTime else { return }
        turnUsed = .zero
        if isItsTurn, let line = turns.popFirst() { turns.append(line) }
    }

    /// Begins a new slot, if the current one has ended.
    private mutating func begin(at now: Instant) {
        if let slotStart, now - slotStart < Self.slotTime { return }
        let slots = slotStart.map { Int(min((now - $0) / Self.slotTime, Double(Self.maxSlots))) } ?? 1
        slotStart = now
        slot += UInt64(slots)
        callersBefore = max(1, callers)
        callers = 0
        // Callers without waiting items are forgotten when there are many of them.
        if lines.count > 2 * (callersBefore + turns.count) + 64 {
            lines = lines.filter { !$0.value.items.isEmpty }
            last = nil
        }
    }

    /// Returns the queue of a caller, and makes one for a new caller.
    private mutating func line(of caller: Caller) -> Line {
        if let last, last.caller == caller { return last.line }
        if let line = lines[caller] {
            last = (caller, line)
            return line
        }
        let line = Line()
        lines[caller] = line
        last = (caller, line)
        return line
    }
}
