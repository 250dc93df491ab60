// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Who is served next when there is more to do than time (E4): everybody has a line, and the lines take turns.
///
/// Whoever stays within its part of a slot is served at once. What comes from somebody beyond that waits in a line, in its
/// order, and so does all that comes behind it. Each slot begins anew; the part of one is smaller the more there are.
/// Time is told from outside: there is no clock in here.
struct FairQueue<Caller: Hashable, Item> {
    typealias Instant = SuspendingClock.Instant

    private final class Line {
        #if !DEBUG && !CARILLON_METER
            @exclusivity(unchecked)
        #endif
        var items = Deque<Item>()
        /// In which slot `used` and `count` were begun.
        #if !DEBUG && !CARILLON_METER
            @exclusivity(unchecked)
        #endif
        var slot: UInt64 = 0
        #if !DEBUG && !CARILLON_METER
            @exclusivity(unchecked)
        #endif
        var used = Duration.zero
        /// What it might use in that slot.
        #if !DEBUG && !CARILLON_METER
            @exclusivity(unchecked)
        #endif
        var part = Duration.zero
        #if !DEBUG && !CARILLON_METER
            @exclusivity(unchecked)
        #endif
        var count = 0
    }

    /// The unit of time in which parts are counted.
    private static var slotTime: Duration { .milliseconds(20) }
    /// The work that others wait for while something is served.
    enum Pressure {
        case none
        /// Much waits to be written, and what comes of it stands behind that.
        case writing
        /// There is more to be read than can be: nearly all of the time is for that.
        case reading

        /// The time in which all together are served at once in a slot; the rest is for what waits.
        fileprivate var timeAtOnce: Duration {
            switch self {
            case .none: .milliseconds(10)
            case .writing: .milliseconds(4)
            case .reading: .milliseconds(1)
            }
        }
    }

    /// For so many slots it is remembered that somebody has used more than its part.
    private static var maxSlots: UInt64 { 50 }
    /// Nobody's part is smaller.
    private static var leastTime: Duration { .microseconds(200) }
    /// What is served of a line before it is the next one's turn.
    private static var turnTime: Duration { .microseconds(500) }

    private var lines: [Caller: Line] = [:]
    /// That of them that was looked up last.
    private var last: (caller: Caller, line: Line)?
    /// Those in which something waits.
    private var turns = Deque<Line>()
    private var slot: UInt64 = 1
    private var slotStart: Instant?
    /// How many were served at once in this slot, and in the one before.
    private var callers = 0
    private var callersBefore = 1
    private var turnUsed = Duration.zero
    /// The line whose item is being served.
    private var current: Line?
    /// How many items wait.
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }

    /// Gives up what is kept of callers of whom nothing is remembered (E8).
    mutating func releaseRoom() { lines.releaseRoom() }

    /// Whether something of the caller waits.
    func isWaiting(_ caller: Caller) -> Bool { lines[caller]?.items.isEmpty == false }

    /// Whether something that just came from the caller may be served at once. Otherwise ``append(_:of:)`` is due, and
    /// if it is, ``note(_:of:)``.
    ///
    /// - Parameters:
    ///   - most: of them in a slot, besides the bound of time; nil for any number.
    mutating func mayServe(_ caller: Caller, at now: Instant, most: Int?, under pressure: Pressure = .none) -> Bool {
        begin(at: now)
        let line = line(of: caller)
        guard line.items.isEmpty else { return false }
        let part = max(pressure.timeAtOnce / callersBefore, Self.leastTime)
        if line.slot != slot {
            // One item may take longer than a slot: that is made up for, but not for ever.
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

    /// So long it took to serve what ``mayServe(_:at:most:)`` let through.
    ///
    /// - Parameter more: how many more it was than one.
    mutating func note(_ time: Duration, of caller: Caller, more: Int = 0) {
        guard let line = last?.caller == caller ? last?.line : lines[caller] else { return }
        line.used += time
        line.count += more
    }

    /// Puts something at the end of the caller's line.
    mutating func append(_ item: Item, of caller: Caller) {
        let line = line(of: caller)
        if line.items.isEmpty { turns.append(line) }
        line.items.append(item)
        count += 1
    }

    /// What is to be served next. ``noteTurn(_:)`` follows.
    mutating func popNext() -> Item? {
        guard let line = turns.first, let item = line.items.popFirst() else { return nil }
        count -= 1
        current = line
        if line.items.isEmpty { turns.popFirst() }
        return item
    }

    /// Puts something at the beginning of the caller's line, like what is left of what ``popNext()`` gave.
    mutating func prepend(_ item: Item, of caller: Caller) {
        let line = line(of: caller)
        if line.items.isEmpty {
            if line === current { turns.prepend(line) } else { turns.append(line) }
        }
        line.items.prepend(item)
        count += 1
    }

    /// So long it took to serve what ``popNext()`` gave. When the line has had its time, it is the next one's turn.
    mutating func noteTurn(_ time: Duration) {
        turnUsed += time
        let isItsTurn = turns.first === current
        current = nil
        guard !isItsTurn || turnUsed >= Self.turnTime else { return }
        turnUsed = .zero
        if isItsTurn, let line = turns.popFirst() { turns.append(line) }
    }

    private mutating func begin(at now: Instant) {
        if let slotStart, now - slotStart < Self.slotTime { return }
        let slots = slotStart.map { Int(min((now - $0) / Self.slotTime, Double(Self.maxSlots))) } ?? 1
        slotStart = now
        slot += UInt64(slots)
        callersBefore = max(1, callers)
        callers = 0
        // Nobody is remembered for what it did long ago.
        if lines.count > 2 * (callersBefore + turns.count) + 64 {
            lines = lines.filter { !$0.value.items.isEmpty }
            last = nil
        }
    }

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
