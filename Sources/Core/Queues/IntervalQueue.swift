// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The throttle of one client: notifications that wait until an observer's minimum interval has ended (R5).
/// ``DeliveryQueue`` owns it.
///
/// An observer with the option `minimum-interval` gets at most one notification of a ``NotificationKey`` in that time.
/// A **mark** is the running interval of one observer for one key. A notification that arrives before the end of the
/// mark waits. It replaces an older waiting notification of the same key, so that the observer gets the newest one.
///
/// An **entry** has the marks of one key and its waiting notification. An entry without a waiting notification is
/// **idle**: it only remembers when intervals end. Marks count against the limits at their size (``stateBytes``). Idle
/// entries also have limits of their own (``maxIdle``). Beyond these the entries that became idle first are forgotten,
/// and their observers may get a notification early.
///
/// A **serial** (``Notification/serial``) is the position of a notification among all posts of the service.
///
/// An operation visits only the observers that it names and the marks of their key. Only ``remove(_:)`` visits every
/// entry. Notifications that are due are returned in slices of at most 64 (``due(now:maySend:)``), so that no call
/// takes long.
struct IntervalQueue {
    /// An observer that matches a notification, and its minimum interval.
    struct IntervalObserver {
        let observer: ObserverID
        /// The minimum interval, in microseconds.
        let interval: Int64
        /// Whether the observer gets notifications also while its client is suspended (`deliver-immediately`).
        let isImmediate: Bool
    }

    /// A notification that may be sent now.
    struct Due {
        let notification: Notification
        /// The observers whose intervals have ended.
        let observers: [ObserverID]
        /// Whether any of them gets notifications also while the client is suspended.
        let isImmediate: Bool
    }

    /// The interval of one observer for one key.
    private struct Mark {
        let observer: ObserverID
        /// The end of the interval, as ``Clock/uptime``.
        var end: Int64
        /// The minimum interval, in microseconds.
        let interval: Int64
        let isImmediate: Bool
        /// Whether the observer waits for the notification of the entry.
        var waits: Bool

        init(_ intervalObserver: IntervalObserver, end: Int64, waits: Bool) {
            observer = intervalObserver.observer
            interval = intervalObserver.interval
            isImmediate = intervalObserver.isImmediate
            self.end = end
            self.waits = waits
        }
    }

    /// The marks of one key and the notification that waits for them.
    private final class Entry {
        /// The hash of the notification key.
        let hash: Int
        /// The notification that the waiting observers get; nil when no observer waits.
        var newest: Notification?
        /// In the order of the observer IDs, so that a mark is found by binary search.
        var marks: [Mark] = []
        /// The number of marks whose observers wait.
        var waiting = 0
        /// The serial of the newest notification of this key that passed the throttle into the queue of the client. The
        /// waiting notification is sent only after it, so that it does not overtake it.
        var after: UInt64 = 0
        /// The time of the next check of the entry, as ``Clock/uptime``: the earliest end among its waiting marks.
        var check: Int64 = .max
        /// The time when the last mark of an idle entry ends, as ``Clock/uptime``.
        var over: Int64 = 0
        /// The number of the entry in the list of idle entries; 0 for an entry that is not idle.
        var idleNumber: UInt64 = 0

        init(hash: Int) {
            self.hash = hash
        }
    }

    /// An element of ``order``: a waiting notification by its serial, and the entry that had it.
    private struct OrderElement {
        let serial: UInt64
        let hash: Int
    }

    /// The scheduled check of an entry: at this time an interval ends. Checks of the same time are in the order of
    /// their serials.
    private struct ScheduledCheck: Comparable {
        let time: Int64
        let serial: UInt64
        let hash: Int

        static func < (left: ScheduledCheck, right: ScheduledCheck) -> Bool {
            (left.time, left.serial) < (right.time, right.serial)
        }
    }

    /// The state of flushes (``flushThrottled(all:)``). A notification that waited at the last flush is due at once. A
    /// flush is stored as a serial, so that it need not visit the entries.
    private struct Flush {
        /// Up to this serial, all observers get their notifications early.
        var all: UInt64 = 0
        /// Up to this serial, observers without immediate delivery get their notifications early.
        var some: UInt64 = 0

        /// Returns the end of the interval of a mark: not later than `now` if a flush included its waiting
        /// notification.
        ///
        /// - Parameter serial: the serial of the waiting notification; nil when none waits.
        func end(of mark: Mark, _ serial: UInt64?, now: Int64) -> Int64 {
            guard let serial, mark.waits, serial <= some else { return mark.end }
            return serial <= all || !mark.isImmediate ? min(mark.end, now) : mark.end
        }
    }

    private let meter: StepMeter
    /// By the hash of the notification key, since the key itself with its texts would double the memory of an entry.
    ///
    /// Two keys with the same hash share an entry. While a notification of one key waits, the other key has no
    /// intervals. Otherwise a notification may have to wait for the interval of the other key.
    private var entries: [Int: Entry] = [:]
    /// The waiting notifications in the order of their serials. A replaced or removed notification keeps its element
    /// until ``dropStale()`` or ``dropGone()`` removes it.
    private var order = Deque<OrderElement>()
    /// The scheduled checks, the earliest first. A check is obsolete when its entry has gone or has another check time.
    private var scheduledChecks = PriorityQueue<ScheduledCheck>()
    /// The idle entries, in the order in which they became idle. An element is obsolete when its entry has got another
    /// number, or none.
    private var idle = Deque<(hash: Int, place: UInt64)>()
    /// The last number that an idle entry has got.
    private var lastIdleNumber: UInt64 = 0
    /// The number of waiting notifications, and their size in bytes.
    private(set) var count = 0
    private(set) var byteCount = 0
    /// The number of all marks.
    private var markCount = 0
    /// The number of waiting marks: an observer counts once for each key that it waits for.
    private(set) var waitingCount = 0
    /// The last flushes.
    private var flushed = Flush()
    /// The serial up to which ``due(now:maySend:)`` has checked the flushed notifications; nil when none is left to
    /// check.
    private var flushCursor: UInt64?

    /// The maximum number of idle entries.
    static let maxIdle = 2048
    /// The maximum number of marks that do not wait. While more marks than that wait, the number of waiting marks is
    /// the maximum.
    private static let maxIdleMarks = 16_384
    /// The maximum number of notifications in one slice of due ones.
    private static let maxDue = 64
    /// The number of marks after which a slice ends.
    private static let maxDueMarks = 8192
    /// The microseconds after which a notification is checked again that would overtake an unsent one. The time is
    /// short, since the client reads and the unsent one leaves soon.
    private static let pause: Int64 = 2000

    init(meter: StepMeter) {
        self.meter = meter
    }

    var isEmpty: Bool { count == 0 }

    /// The size of the marks and tables, in bytes.
    var stateBytes: Int { markCount * MemoryLayout<Mark>.stride + entries.count * Self.entryBytes }

    /// The estimated size of an entry and its elements in the tables, in bytes.
    private static let entryBytes = 224

    /// The time of the next check, as ``Clock/uptime``. It is 0 when flushed notifications are left to check, and nil
    /// when nothing waits.
    var firstEnd: Int64? {
        mutating get {
            guard count > 0 else { return nil }
            if flushCursor != nil { return 0 }
            while let first = scheduledChecks.first {
                // Obsolete checks before it are removed.
                if let entry = entries[first.hash], entry.newest != nil, entry.check == first.time { return first.time }
                meter.count()
                scheduledChecks.popFirst()
            }
            return nil
        }
    }

    /// The serial of the oldest waiting notification.
    var firstSerial: UInt64? {
        mutating get {
            dropGone()
            return order.first?.serial
        }
    }

    /// Returns the hash of a notification key, by which its entry is found.
    private static func hash(_ key: NotificationKey) -> Int { key.hashValue }

    /// Returns the entry of a key. A new entry is not stored before ``store(_:newest:changed:)``.
    private func entry(_ key: NotificationKey) -> Entry {
        let hash = Self.hash(key)
        return entries[hash] ?? Entry(hash: hash)
    }

    // MARK: Waiting

    /// Takes a notification for observers with intervals. An observer whose interval has ended gets it now; the others
    /// wait for it.
    ///
    /// - Parameters:
    ///   - intervalObservers: in the order of the observer IDs.
    ///   - now: ``Clock/uptime``.
    /// - Returns: the observers that get it now, and whether it replaced an older waiting notification.
    mutating func admit(
        _ notification: Notification, for intervalObservers: [IntervalObserver], now: Int64
    ) -> (observers: [ObserverID], hasReplaced: Bool) {
        let entry = entry(notification.key)
        // Another key with the same hash uses the entry. The intervals of this key are unknown, so all observers get
        // the notification.
        if let newest = entry.newest, newest.key != notification.key {
            return (intervalObservers.map(\.observer), false)
        }
        let serialBefore = entry.newest?.serial
        var admitted: [ObserverID] = []
        let changed = merge(intervalObservers, into: entry) { [flushed] mark, intervalObserver in
            // An observer that waits goes on waiting even after its interval, until the waiting notification is taken.
            guard let mark, mark.waits || mark.end > now else {
                admitted.append(intervalObserver.observer)
                return Mark(intervalObserver, end: now + intervalObserver.interval, waits: false)
            }
            // A flushed notification is due at once, and so is its replacement.
            return Mark(intervalObserver, end: flushed.end(of: mark, serialBefore, now: now), waits: true)
        }
        if !admitted.isEmpty { entry.after = notification.serial }
        store(entry, newest: notification, changed: changed)
        boundIdle(now: now)
        return (admitted, serialBefore != nil)
    }

    /// Begins the intervals of observers that get a notification without regard to their intervals, such as observers
    /// of a suspended client. These observers no longer wait for an older notification of the key.
    ///
    /// - Parameter intervalObservers: in the order of the observer IDs.
    /// - Returns: the observers that waited for an older notification.
    mutating func begin(_ notification: Notification, for intervalObservers: [IntervalObserver], now: Int64)
        -> [ObserverID]
    {
        let entry = entry(notification.key)
        // Another key with the same hash uses the entry, so no interval begins.
        if let newest = entry.newest, newest.key != notification.key { return [] }
        let isNewer = entry.newest.map { $0.serial < notification.serial } ?? true
        var replaced: [ObserverID] = []
        let changed = merge(intervalObservers, into: entry) { mark, intervalObserver in
            let waited = mark?.waits ?? false
            if waited, isNewer { replaced.append(intervalObserver.observer) }
            return Mark(intervalObserver, end: now + intervalObserver.interval, waits: waited && !isNewer)
        }
        entry.after = max(entry.after, notification.serial)
        store(entry, newest: entry.newest, changed: changed)
        boundIdle(now: now)
        return replaced
    }

    /// Restores a notification that waited in an earlier process (E3). It is due at once, as the ends of the intervals
    /// are not in the recovery log.
    mutating func restore(_ notification: Notification, for intervalObservers: [IntervalObserver]) {
        let entry = entry(notification.key)
        // A notification of another key with the same hash, or a newer one of this key, waits already.
        if let newest = entry.newest, newest.key != notification.key || newest.serial >= notification.serial {
            return
        }
        let changed = merge(intervalObservers, into: entry) { _, intervalObserver in
            Mark(intervalObserver, end: 0, waits: true)
        }
        // The last notification that its observers got is unknown, but older than this one.
        entry.after = max(notification.serial, 1) - 1
        store(entry, newest: notification, changed: changed)
    }

    /// Replaces the marks of these observers, or adds them. The lists of observers and of marks are both in the order
    /// of the observer IDs.
    ///
    /// - Parameter make: makes the new mark from the present one and the observer.
    /// - Returns: the new mark if it is the only change; otherwise nil.
    private mutating func merge(
        _ intervalObservers: [IntervalObserver], into entry: Entry, _ make: (Mark?, IntervalObserver) -> Mark
    ) -> Mark? {
        if intervalObservers.count == 1 { return merge(intervalObservers[0], into: entry, make) }
        meter.count(intervalObservers.count + entry.marks.count)
        let before = (entry.marks.count, entry.waiting)
        var merged: [Mark] = []
        merged.reserveCapacity(max(entry.marks.count, intervalObservers.count))
        var old = entry.marks[...]
        for intervalObserver in intervalObservers {
            while let first = old.first, first.observer < intervalObserver.observer { merged.append(old.removeFirst()) }
            let mark = old.first?.observer == intervalObserver.observer ? old.removeFirst() : nil
            merged.append(make(mark, intervalObserver))
        }
        entry.marks = merged + old
        countMarks(of: entry, before)
        return nil
    }

    /// Replaces or adds the mark of a single observer by binary search. A key may have thousands of marks, and their
    /// observers often come one by one.
    ///
    /// - Parameter make: returns the new mark. It receives the present mark, which is nil for none.
    /// - Returns: the new mark; nil when the earliest end may have to be computed anew.
    private mutating func merge(
        _ intervalObserver: IntervalObserver, into entry: Entry, _ make: (Mark?, IntervalObserver) -> Mark
    ) -> Mark? {
        let place = entry.marks.place(of: intervalObserver.observer) { $0.observer }
        let isThere = place < entry.marks.count && entry.marks[place].observer == intervalObserver.observer
        let before = isThere ? entry.marks[place] : nil
        let mark = make(before, intervalObserver)
        if isThere {
            entry.marks[place] = mark
        } else {
            // The marks behind it move.
            meter.countCopy(of: (entry.marks.count - place) * MemoryLayout<Mark>.stride)
            entry.marks.insert(mark, at: place)
        }
        meter.count(2)
        let moreWaiting = (mark.waits ? 1 : 0) - (before?.waits == true ? 1 : 0)
        entry.waiting += moreWaiting
        if entries[entry.hash] === entry {
            markCount += isThere ? 0 : 1
            waitingCount += moreWaiting
        }
        // The mark before had the earliest end, so the next one is unknown.
        return entry.check == before?.end ? nil : mark
    }

    /// Updates the totals after a change of the marks of an entry. An entry that is not stored yet is counted when it
    /// is stored.
    private mutating func countMarks(of entry: Entry, _ before: (marks: Int, waiting: Int)) {
        entry.waiting = entry.marks.count(where: \.waits)
        guard entries[entry.hash] === entry else { return }
        markCount += entry.marks.count - before.marks
        waitingCount += entry.waiting - before.waiting
    }

    // MARK: Due notifications

    /// Makes the waiting notifications due at once.
    ///
    /// - Parameter all: whether that holds for all observers. Otherwise it holds for observers without immediate
    ///   delivery alone.
    mutating func flushThrottled(all: Bool) {
        guard let last = order.last?.serial else { return }
        if all { flushed.all = last }
        flushed.some = last
        flushCursor = 0
    }

    /// Returns a slice of the notifications that are due, in the order of their serials. They stay in the queue until
    /// ``take(_:for:now:)``.
    ///
    /// The slice gets flushed notifications first, then those whose scheduled check has come. The check of an entry
    /// that stays in the queue is scheduled again.
    ///
    /// - Parameter maySend: whether all other notifications in the queue of the client up to this serial have been
    ///   sent.
    mutating func due(now: Int64, maySend: (UInt64) -> Bool) -> [Due] {
        let flushed = flushed
        var (due, marks): ([Due], Int) = ([], 0)
        var hasCapacity: Bool { due.count < Self.maxDue && marks < Self.maxDueMarks }
        // Checks an entry. The result is true for an entry that joined the slice, and false when no interval has ended.
        // It is nil when an older notification must be sent first.
        func check(at entry: Entry, _ newest: Notification) -> Bool? {
            marks += entry.marks.count
            // The waiting marks whose intervals have ended.
            let over = entry.marks.filter {
                $0.waits && flushed.end(of: $0, newest.serial, now: now) <= now
            }
            guard !over.isEmpty else { return false }
            guard maySend(entry.after) else { return nil }
            due.append(
                Due(
                    notification: newest, observers: over.map(\.observer),
                    isImmediate: over.contains(where: \.isImmediate)))
            return true
        }
        checkFlushed(while: { hasCapacity }, check)
        var again: [ScheduledCheck] = []
        while hasCapacity, let first = scheduledChecks.first, first.time <= now {
            scheduledChecks.popFirst()
            guard let entry = entries[first.hash], let newest = entry.newest, entry.check == first.time else {
                meter.count()
                continue
            }
            switch check(at: entry, newest) {
            // The check stays scheduled until the notification is taken.
            case true?: again.append(first)
            case false?: scheduleCheck(entry)
            case nil:
                entry.check = now + Self.pause
                again.append(ScheduledCheck(time: entry.check, serial: newest.serial, hash: entry.hash))
            }
        }
        for check in again { scheduledChecks.insert(check) }
        meter.count(2 * marks)
        due.sort { $0.notification.serial < $1.notification.serial }
        // A notification may have been found twice: as flushed, and by its scheduled check.
        return due.enumerated().filter { $0 == 0 || due[$0 - 1].notification.serial != $1.notification.serial }.map(
            \.element)
    }

    /// Checks flushed notifications from the oldest on. It stops when the slice is full, or at a notification that must
    /// not be sent yet.
    private mutating func checkFlushed(while hasCapacity: () -> Bool, _ check: (Entry, Notification) -> Bool?) {
        guard var cursor = flushCursor else { return }
        let end = max(flushed.some, flushed.all)
        // Whether no notification of this call has joined the slice yet.
        var isFirst = true
        for place in order.suffix(from: placeInOrder(after: cursor)) {
            guard place.serial <= end else { break }
            meter.count()
            guard hasCapacity() else { return flushCursor = cursor }
            guard isThere(place), let entry = entries[place.hash], let newest = entry.newest else { continue }
            switch check(entry, newest) {
            // The cursor stays before this notification until it is taken, so that it is found again.
            case true?: isFirst = false
            case false?: break
            case nil: return flushCursor = cursor
            }
            if isFirst { cursor = place.serial }
        }
        flushCursor = isFirst ? nil : cursor
    }

    /// Returns the index of the first element of ``order`` behind this serial.
    private func placeInOrder(after serial: UInt64) -> Int {
        var (low, high) = (0, order.count)
        while low < high {
            let middle = (low + high) / 2
            if order[middle].serial <= serial { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// Ends the waiting of observers to which the notification is sent now. Their intervals begin anew.
    mutating func take(_ key: NotificationKey, for observers: [ObserverID], now: Int64) {
        change(key, for: observers) { mark in
            mark.waits = false
            mark.end = now + mark.interval
        }
    }

    /// Ends the waiting of observers without a new interval: an earlier process sent the notification, it has expired, or
    /// a newer one replaces it that the observers get in another way.
    ///
    /// - Returns: the observers that waited.
    @discardableResult
    mutating func forget(_ key: NotificationKey, for observers: [ObserverID]) -> [ObserverID] {
        var waited: [ObserverID] = []
        change(key, for: observers) { mark in
            if mark.waits { waited.append(mark.observer) }
            mark.waits = false
        }
        return waited
    }

    /// Changes the marks of these observers, if a notification of this key waits.
    private mutating func change(
        _ key: NotificationKey, for observers: [ObserverID], _ body: (inout Mark) -> Void
    ) {
        guard let entry = entries[Self.hash(key)], let newest = entry.newest, newest.key == key else { return }
        let before = (entry.marks.count, entry.waiting)
        meter.count(observers.count + entry.marks.count)
        if observers.count == 1 {
            if let place = place(of: observers[0], in: entry.marks) { body(&entry.marks[place]) }
        } else {
            let observers = Set(observers)
            for index in entry.marks.indices where observers.contains(entry.marks[index].observer) {
                body(&entry.marks[index])
            }
        }
        countMarks(of: entry, before)
        store(entry, newest: newest)
    }

    /// Returns the index of the mark of an observer; nil when the observer has none.
    private func place(of observer: ObserverID, in marks: [Mark]) -> Int? {
        let place = marks.place(of: observer) { $0.observer }
        return place < marks.count && marks[place].observer == observer ? place : nil
    }

    /// Removes the oldest waiting notification.
    ///
    /// - Returns: the observers that lose it.
    mutating func dropOldest() -> ObserverList? { popOldest().map { ObserverList($0.observers) } }

    /// Removes the oldest waiting notification.
    ///
    /// - Returns: the notification and the observers that lose it.
    mutating func popOldest() -> (notification: Notification, observers: [ObserverID])? {
        dropGone()
        guard let place = order.first, let entry = entries[place.hash], let newest = entry.newest else { return nil }
        meter.count(2 * entry.marks.count)
        let observers = entry.marks.filter(\.waits).map(\.observer)
        endWaiting(of: entry)
        return (newest, observers)
    }

    /// Removes the waiting notification of an entry. Its intervals go on.
    private mutating func endWaiting(of entry: Entry) {
        let before = (entry.marks.count, entry.waiting)
        for index in entry.marks.indices { entry.marks[index].waits = false }
        countMarks(of: entry, before)
        store(entry, newest: nil)
    }

    // MARK: Removal of observers

    /// Removes observers from all entries. A notification that no other observer waits for is removed too.
    mutating func remove(_ ids: Set<ObserverID>) {
        let ids = ids.sorted()
        meter.countSort(of: ids.count)
        for entry in Array(entries.values) {
            let before = (entry.marks.count, entry.waiting)
            let (places, steps) = ids.places(in: entry.marks) { $0.observer }
            meter.count(1 + steps)
            guard !places.isEmpty else { continue }
            meter.countCopy(of: entry.marks.count * MemoryLayout<Mark>.stride)
            entry.marks.remove(at: places)
            countMarks(of: entry, before)
            store(entry, newest: entry.newest)
        }
    }

    // MARK: Queries

    /// The number of observers with an interval of this key.
    func countOfMarks(of key: NotificationKey) -> Int { entries[Self.hash(key)]?.marks.count ?? 0 }

    /// Returns the microseconds that a new notification would wait for the interval of an observer; nil when it would
    /// not wait.
    func wait(of key: NotificationKey, for observer: ObserverID, now: Int64) -> Int64? {
        guard let entry = entries[Self.hash(key)], entry.newest.map({ $0.key == key }) ?? true,
            let place = place(of: observer, in: entry.marks)
        else { return nil }
        meter.count()
        let mark = entry.marks[place]
        let end = flushed.end(of: mark, entry.newest?.serial, now: now)
        return mark.waits || end > now ? max(0, end - now) : nil
    }

    /// Calls `body` with each waiting notification and its waiting observers, in the order of the serials.
    func forEach(_ body: (Notification, [ObserverID]) -> Void) {
        meter.count(order.count)
        for place in order where isThere(place) {
            guard let entry = entries[place.hash], let newest = entry.newest else { continue }
            meter.count(entry.marks.count)
            body(newest, entry.marks.filter(\.waits).map(\.observer))
        }
    }

    // MARK: Accounting

    /// Stores an entry after a change of its marks, and updates the totals, the order and the scheduled check.
    ///
    /// - Parameters:
    ///   - newest: the notification for the waiting observers. It is dropped when none waits.
    ///   - changed: the only mark that has changed since the last call; nil where other marks may have changed.
    private mutating func store(_ entry: Entry, newest: Notification?, changed: Mark? = nil) {
        let before = entry.newest
        let newest = entry.waiting > 0 ? newest : nil
        entry.newest = newest
        // A new entry adds all of its marks to the totals. For a stored one, the change of the marks did that.
        if entries.updateValue(entry, forKey: entry.hash) == nil {
            markCount += entry.marks.count
            waitingCount += entry.waiting
        }
        // Another notification waits, or none any more.
        if before?.serial != newest?.serial {
            if let before {
                count -= 1
                byteCount -= before.byteCount
            }
            if let newest {
                count += 1
                byteCount += newest.byteCount
                order.append(OrderElement(serial: newest.serial, hash: entry.hash))
            }
        }
        if newest != nil {
            entry.idleNumber = 0
            scheduleCheck(entry, changed: changed)
        } else {
            noteIdle(entry, changed: changed)
        }
        if count == 0 { flushCursor = nil }
        dropStale()
    }

    /// Schedules the check of an entry at the earliest end among its waiting marks.
    ///
    /// - Parameter changed: the only mark that has changed since the last call; nil where other marks may have changed.
    private mutating func scheduleCheck(_ entry: Entry, changed: Mark? = nil) {
        var first = Int64.max
        if let changed, entry.check < .max {
            first = changed.waits ? min(entry.check, changed.end) : entry.check
        } else {
            meter.count(entry.marks.count)
            for mark in entry.marks where mark.waits { first = min(first, mark.end) }
        }
        guard entry.check != first else { return }
        entry.check = first
        scheduledChecks.insert(ScheduledCheck(time: first, serial: entry.newest?.serial ?? 0, hash: entry.hash))
    }

    /// Appends an entry without a waiting notification to the idle entries. An entry without marks is forgotten.
    private mutating func noteIdle(_ entry: Entry, changed: Mark?) {
        entry.check = .max
        guard !entry.marks.isEmpty else { return forget(entry) }
        // Time only grows, so a changed mark ends no earlier than before.
        if let changed, entry.idleNumber != 0 {
            entry.over = max(entry.over, changed.end)
        } else {
            meter.count(entry.marks.count)
            entry.over = entry.marks.reduce(0) { max($0, $1.end) }
        }
        guard entry.idleNumber == 0 else { return }
        lastIdleNumber += 1
        entry.idleNumber = lastIdleNumber
        idle.append((entry.hash, lastIdleNumber))
    }

    /// The number of idle entries: each entry without a waiting notification.
    private var idleCount: Int { entries.count - count }

    /// Whether an element of ``idle`` is not obsolete.
    private func isIdle(_ place: (hash: Int, place: UInt64)) -> Bool { entries[place.hash]?.idleNumber == place.place }

    /// Removes an idle entry with its marks.
    private mutating func forget(_ entry: Entry) {
        entries[entry.hash] = nil
        markCount -= entry.marks.count
        if entries.capacity > 1024, entries.count < entries.capacity / 8 {
            meter.count(entries.count)
            entries.releaseMemory()
        }
    }

    /// Removes obsolete elements where they outnumber the valid ones. The cost of an operation thus stays amortized
    /// O(1).
    private mutating func dropStale() {
        if idle.count > 2 * idleCount + 64 {
            meter.count(idle.count)
            idle.removeAll { [entries] place in entries[place.hash]?.idleNumber != place.place }
        }
        if order.count > 2 * count + 64 {
            meter.count(order.count)
            order.removeAll { [entries] in entries[$0.hash]?.newest?.serial != $0.serial }
        }
        if scheduledChecks.count > 2 * count + 64 {
            meter.count(scheduledChecks.count)
            // An entry may have two checks of the same time; one stays.
            var kept: Set<Int> = []
            scheduledChecks.removeAll { [entries] check in
                guard let entry = entries[check.hash], entry.newest != nil, entry.check == check.time else {
                    return true
                }
                return !kept.insert(check.hash).inserted
            }
        }
    }

    /// Whether an element of ``order`` is not obsolete.
    private func isThere(_ place: OrderElement) -> Bool { entries[place.hash]?.newest?.serial == place.serial }

    /// Removes obsolete elements from the front of ``order``.
    private mutating func dropGone() {
        while let first = order.first, !isThere(first) {
            meter.count()
            _ = order.popFirst()
        }
    }

    /// Removes up to four idle entries whose intervals have ended, so that each new notification frees the memory of
    /// some old ones. Idle entries beyond the limits are removed in any case, the oldest first.
    private mutating func boundIdle(now: Int64) {
        var left = 4
        while let place = idle.first {
            meter.count()
            guard isIdle(place), let entry = entries[place.hash] else {
                _ = idle.popFirst()
                continue
            }
            let isTooMuch =
                idleCount > Self.maxIdle || markCount - waitingCount > max(Self.maxIdleMarks, waitingCount)
            guard isTooMuch || left > 0 && entry.over <= now else { return }
            left -= 1
            _ = idle.popFirst()
            forget(entry)
        }
    }

    /// Forgets the intervals of all idle entries, to free memory for notifications. Their observers may get the next
    /// notification early.
    ///
    /// - Returns: whether there were any.
    mutating func forgetIdle() -> Bool {
        let before = entries.count
        while let place = idle.popFirst() {
            meter.count()
            if isIdle(place), let entry = entries[place.hash] { forget(entry) }
        }
        return entries.count < before
    }

    /// Checks all conditions that hold between two events, in debug builds and the simulation.
    func checkInvariants() throws(BrokenInvariant) {
        let waiting = entries.values.compactMap(\.newest)
        try require(
            waiting.count == count && waiting.reduce(0) { $0 + $1.byteCount } == byteCount,
            "E1: the totals of throttled notifications are their sums")
        try require(
            markCount == entries.values.reduce(0) { $0 + $1.marks.count }
                && waitingCount == entries.values.reduce(0) { $0 + $1.waiting }, "E4: marks are counted")
        try require(
            Set(order.filter(isThere).map(\.serial)) == Set(waiting.map(\.serial)),
            "R5: each throttled notification is in the order")
        try require(
            order.count <= 2 * count + 64 && scheduledChecks.count <= 2 * count + 64,
            "E4: obsolete elements are bounded")
        let checkTimes = Set(scheduledChecks.unordered.map { [Int64($0.hash), $0.time] })
        let idleHashes = Set(idle.filter(isIdle).map(\.hash))
        for (hash, entry) in entries {
            try require(
                hash == entry.hash && entry.waiting == entry.marks.count(where: \.waits)
                    && (entry.waiting > 0) == (entry.newest != nil),
                "R5: a notification is stored exactly while observers wait")
            try require(
                zip(entry.marks, entry.marks.dropFirst()).allSatisfy { $0.observer < $1.observer },
                "R5: an observer has one interval for each key")
            guard entry.newest != nil else {
                try require(idleHashes.contains(hash), "E4: an entry without a notification is in the idle list")
                continue
            }
            try require(
                checkTimes.contains([Int64(hash), entry.check]), "R5: each throttled notification has a scheduled check"
            )
        }
    }
}
