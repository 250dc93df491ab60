// SPDX-License-Identifier: Apache-2.0
import Collections

/// What observers with a minimum interval wait for (R5): of each ``NotificationKind`` the newest, until the intervals of
/// those that have not got it are over.
///
/// Intervals are marks: an observer that got a notification of a kind gets the next one not before its mark is over. A mark
/// that nothing waits for costs nothing to anybody but a little memory, of which there is a bound; who has more kinds within
/// their intervals than that gets some of them earlier.
struct IntervalQueue {
    /// One observer that a notification matched, with what it asked for.
    struct Wish {
        let observer: ObserverID
        /// In microseconds.
        let interval: Int64
        /// Whether it gets what it matches also while its client is suspended.
        let isImmediate: Bool
    }

    private struct Mark {
        let wish: Wish
        /// As ``Clock/uptime``.
        var end: Int64
        var waits: Bool
    }

    private struct Entry {
        /// For those that wait.
        var newest: Notification?
        /// By their observers' numbers.
        var marks: [Mark]
        /// The last one that went to the client's queue: what waits must not overtake it.
        var after: UInt64 = 0
    }

    private struct Place {
        let serial: UInt64
        let key: Int
    }

    private let meter: StepMeter
    /// By a hash of the kind.
    private var entries: [Int: Entry] = [:]
    /// What waits, by its serial; also what was replaced or has gone since.
    private var order = Deque<Place>()
    private(set) var count = 0
    private(set) var byteCount = 0
    /// Before this nothing has to be looked at; nil when nothing waits.
    private(set) var firstEnd: Int64?

    /// Entries that may be kept of what nothing waits for.
    static let mostIdle = 4096

    init(meter: StepMeter) {
        self.meter = meter
    }

    var isEmpty: Bool { count == 0 }

    /// The serial of the oldest that waits.
    var firstSerial: UInt64? {
        mutating get {
            dropGone()
            return order.first?.serial
        }
    }

    private static func key(_ kind: NotificationKind) -> Int { kind.hashValue }

    /// A notification for observers with intervals: those whose intervals are over get it now, the others wait for it.
    ///
    /// - Parameters:
    ///   - wishes: by the observers' numbers.
    ///   - now: ``Clock/uptime``.
    /// - Returns: who gets it now, and whether it took the place of an older one.
    mutating func admit(
        _ notification: Notification, for wishes: [Wish], now: Int64
    ) -> (observers: [ObserverID], hasReplaced: Bool) {
        let kind = notification.kind
        let key = Self.key(kind)
        var entry = entries[key] ?? Entry(newest: nil, marks: [])
        // Two kinds with one hash: nothing of this one is known, so nothing holds it back.
        if let newest = entry.newest, newest.kind != kind { return (wishes.map(\.observer), false) }
        var admitted: [ObserverID] = []
        var waits = false
        merge(wishes, into: &entry.marks) { mark, wish in
            guard let mark, mark.waits || mark.end > now else {
                admitted.append(wish.observer)
                return Mark(wish: wish, end: now + wish.interval, waits: false)
            }
            waits = true
            firstEnd = min(firstEnd ?? mark.end, mark.end)
            return Mark(wish: wish, end: mark.end, waits: true)
        }
        if !admitted.isEmpty { entry.after = notification.serial }
        let hasReplaced = entry.newest != nil
        store(entry, newest: waits ? notification : nil, key)
        boundMarks(now: now)
        return (admitted, hasReplaced)
    }

    /// Observers get a notification whatever their intervals, and these begin. What they waited for that is older is not
    /// for them any more.
    ///
    /// - Parameter wishes: by the observers' numbers.
    /// - Returns: those that waited for something older.
    mutating func begin(_ notification: Notification, for wishes: [Wish], now: Int64) -> [ObserverID] {
        let kind = notification.kind
        let key = Self.key(kind)
        var entry = entries[key] ?? Entry(newest: nil, marks: [])
        if let newest = entry.newest, newest.kind != kind { return [] }
        let isNewer = entry.newest.map { $0.serial < notification.serial } ?? true
        var replaced: [ObserverID] = []
        merge(wishes, into: &entry.marks) { mark, wish in
            let waited = mark?.waits ?? false
            if waited, isNewer { replaced.append(wish.observer) }
            return Mark(wish: wish, end: now + wish.interval, waits: waited && !isNewer)
        }
        entry.after = max(entry.after, notification.serial)
        store(entry, newest: entry.marks.contains(where: \.waits) ? entry.newest : nil, key)
        boundMarks(now: now)
        return replaced
    }

    /// Walks both, which are in the order of the observers' numbers.
    private func merge(_ wishes: [Wish], into marks: inout [Mark], _ make: (Mark?, Wish) -> Mark) {
        meter.count(wishes.count + marks.count)
        if marks.count == 1, wishes.count == 1, marks[0].wish.observer == wishes[0].observer {
            marks[0] = make(marks[0], wishes[0])
            return
        }
        var merged: [Mark] = []
        merged.reserveCapacity(max(marks.count, wishes.count))
        var old = marks[...]
        for wish in wishes {
            while let first = old.first, first.wish.observer < wish.observer { merged.append(old.removeFirst()) }
            let mark = old.first?.wish.observer == wish.observer ? old.removeFirst() : nil
            merged.append(make(mark, wish))
        }
        marks = merged + old
    }

    /// What waits for observers and was there before (E3); it is due at once.
    mutating func restore(_ notification: Notification, for wishes: [Wish]) {
        let kind = notification.kind
        let key = Self.key(kind)
        var entry = entries[key] ?? Entry(newest: nil, marks: [])
        if let newest = entry.newest, newest.kind != kind || newest.serial >= notification.serial { return }
        merge(wishes, into: &entry.marks) { _, wish in Mark(wish: wish, end: 0, waits: true) }
        // Nothing tells what its observers got before; it is among what is older.
        entry.after = max(notification.serial, 1) - 1
        store(entry, newest: notification, key)
        firstEnd = 0
    }

    /// Ends the intervals of those that wait: of all, or of those to whom it matters whether their client is suspended.
    mutating func hasten(all: Bool) {
        for place in order {
            meter.count()
            guard isThere(place), var entry = entries[place.key] else { continue }
            meter.count(entry.marks.count)
            for index in entry.marks.indices
            where entry.marks[index].waits && (all || !entry.marks[index].wish.isImmediate) {
                entry.marks[index].end = 0
                firstEnd = 0
            }
            entries[place.key] = entry
        }
    }

    /// What may go now, in the order of the serials, with those that get it. It stays until ``take(_:for:now:)``.
    ///
    /// - Parameter mayGo: whether all that was due up to a serial has gone.
    mutating func due(
        now: Int64, mayGo: (UInt64) -> Bool
    ) -> [(notification: Notification, observers: [ObserverID], isImmediate: Bool)] {
        dropGone()
        var due: [(notification: Notification, observers: [ObserverID], isImmediate: Bool)] = []
        var next: Int64?
        meter.count(order.count)
        for place in order where isThere(place) {
            guard var entry = entries[place.key], let newest = entry.newest else { continue }
            meter.count(2 * entry.marks.count)
            let over = entry.marks.filter { $0.waits && $0.end <= now }
            if !over.isEmpty {
                if mayGo(entry.after) {
                    due.append((newest, over.map(\.wish.observer), over.contains(where: \.wish.isImmediate)))
                } else {
                    // Soon.
                    for index in entry.marks.indices where entry.marks[index].end <= now {
                        entry.marks[index].end = now + Self.pause
                    }
                    entries[place.key] = entry
                }
            }
            for mark in entry.marks where mark.waits && mark.end > now { next = min(next ?? mark.end, mark.end) }
        }
        firstEnd = next
        return due
    }

    /// What was due did not go, for want of room.
    mutating func lookAgain() {
        if count > 0 { firstEnd = 0 }
    }

    /// Microseconds.
    private static let pause: Int64 = 2000

    /// Observers got what they waited for, or it is over for them: their intervals begin anew.
    mutating func take(_ kind: NotificationKind, for observers: [ObserverID], now: Int64) {
        change(kind, for: observers) { mark in
            mark.waits = false
            mark.end = now + mark.wish.interval
        }
    }

    /// The same without an interval: it went from an earlier process, or to nobody.
    mutating func forget(_ kind: NotificationKind, for observers: [ObserverID]) {
        change(kind, for: observers) { $0.waits = false }
    }

    private mutating func change(
        _ kind: NotificationKind, for observers: [ObserverID], _ body: (inout Mark) -> Void
    ) {
        let key = Self.key(kind)
        guard var entry = entries[key], let newest = entry.newest, newest.kind == kind else { return }
        let observers = Set(observers)
        meter.count(observers.count + 2 * entry.marks.count)
        for index in entry.marks.indices where observers.contains(entry.marks[index].wish.observer) {
            body(&entry.marks[index])
        }
        store(entry, newest: entry.marks.contains(where: \.waits) ? newest : nil, key)
    }

    /// Takes the oldest that waits.
    ///
    /// - Returns: the observers that miss it.
    mutating func dropOldest() -> [ObserverID]? {
        dropGone()
        guard let place = order.popFirst(), var entry = entries[place.key] else { return nil }
        meter.count(entry.marks.count)
        let observers = entry.marks.filter(\.waits).map(\.wish.observer)
        for index in entry.marks.indices { entry.marks[index].waits = false }
        store(entry, newest: nil, place.key)
        return observers
    }

    /// Takes the observers out of everything; what nobody waits for any more goes.
    mutating func remove(_ removed: Set<ObserverID>) {
        for (key, var entry) in entries {
            let before = entry.marks.count
            meter.count(1 + before)
            entry.marks.removeAll { removed.contains($0.wish.observer) }
            guard entry.marks.count < before else { continue }
            store(entry, newest: entry.marks.contains(where: \.waits) ? entry.newest : nil, key)
            if entry.marks.isEmpty { entries[key] = nil }
        }
    }

    /// How long a notification would wait for an observer's interval; nil when it would not. In microseconds.
    func wait(of kind: NotificationKind, for observer: ObserverID, now: Int64) -> Int64? {
        guard let entry = entries[Self.key(kind)], entry.newest.map({ $0.kind == kind }) ?? true else { return nil }
        meter.count(entry.marks.count)
        guard let mark = entry.marks.first(where: { $0.wish.observer == observer }), mark.waits || mark.end > now
        else { return nil }
        return max(0, mark.end - now)
    }

    /// All that waits, by its serial.
    func forEach(_ body: (Notification, [ObserverID]) -> Void) {
        meter.count(order.count)
        for place in order where isThere(place) {
            guard let entry = entries[place.key], let newest = entry.newest else { continue }
            meter.count(entry.marks.count)
            body(newest, entry.marks.filter(\.waits).map(\.wish.observer))
        }
    }

    // MARK: Keeping count

    private mutating func store(_ entry: Entry, newest: Notification?, _ key: Int) {
        var entry = entry
        let before = entry.newest
        entry.newest = newest
        entries[key] = entry
        guard before?.serial != newest?.serial else { return }
        if let before {
            count -= 1
            byteCount -= Self.byteCount(of: before)
        }
        if let newest {
            count += 1
            byteCount += Self.byteCount(of: newest)
            order.append(Place(serial: newest.serial, key: key))
        }
        if count == 0 { firstEnd = nil }
        guard order.count > 2 * count + 64 else { return }
        meter.count(order.count)
        order.removeAll { [entries] in entries[$0.key]?.newest?.serial != $0.serial }
    }

    private static func byteCount(of notification: Notification) -> Int { notification.byteCount }

    private func isThere(_ place: Place) -> Bool { entries[place.key]?.newest?.serial == place.serial }

    private mutating func dropGone() {
        while let first = order.first, !isThere(first) {
            meter.count()
            _ = order.popFirst()
        }
    }

    /// Forgets intervals that are over, and if there are too many, those of what nothing waits for.
    private mutating func boundMarks(now: Int64) {
        guard entries.count > count + Self.mostIdle else { return }
        meter.count(2 * entries.count)
        entries = entries.filter { $0.value.newest != nil || $0.value.marks.contains { $0.end > now } }
        guard entries.count > count + Self.mostIdle / 2 else { return }
        entries = entries.filter { $0.value.newest != nil }
    }

    func checkInvariants() throws(BrokenInvariant) {
        let waiting = entries.values.compactMap(\.newest)
        try require(
            waiting.count == count && waiting.reduce(0) { $0 + Self.byteCount(of: $1) } == byteCount,
            "E1: what waits for intervals is the sum of it")
        try require(
            Set(order.filter(isThere).map(\.serial)) == Set(waiting.map(\.serial)), "R5: what waits has its place")
        for entry in entries.values {
            try require(
                entry.marks.contains(where: \.waits) == (entry.newest != nil), "R5: what is kept is waited for")
            try require(
                zip(entry.marks, entry.marks.dropFirst()).allSatisfy { $0.wish.observer < $1.wish.observer },
                "R5: an observer has one interval for each kind")
            let ends = entry.marks.filter(\.waits).map(\.end)
            try require(ends.allSatisfy { end in firstEnd.map { $0 <= end } ?? false }, "R5: the first end is known")
        }
    }
}
