// SPDX-License-Identifier: Apache-2.0
/// The queue of all notifications for one client (``Client/queue``). Each notification is due, held or throttled:
///
/// - **Due** notifications are sent when the client reads and the send schedule reaches their lane. The more urgent
///   lane is first (M6); within a lane the order is global.
/// - **Held** notifications of a suspended client stay until the client is resumed or the queue is flushed. They have
///   one order over all observers and behaviors of the client (S2).
/// - **Throttled** notifications wait for the end of a minimum interval (R5). They are then sent without a lane.
///
/// A **flush** makes all held notifications due, ahead of anything newer, in the lane ``DeliveryLane/flushed``. The
/// notifications that were due before join them. No entry moves: flushed entries are the oldest ones of the held queue
/// and of each lane, and ``flushedSource`` finds the next of them by its serial. A **serial** is the position of a
/// notification among all posts of the service.
///
/// The type is not copyable, as copies would retain and release all parts on each access.
struct DeliveryQueue: ~Copyable {
    /// The due notifications, by the raw value of ``DeliveryLane``.
    private var lanes: [DueQueue]
    /// The held notifications, and formerly held notifications that are due.
    private var held: HeldQueue
    /// The throttled notifications.
    private var intervals: IntervalQueue
    private let meter: StepMeter
    /// The number and size in bytes of the due notifications in the lanes, without the formerly held ones.
    private var laneCount = 0
    private var laneByteCount = 0

    init(meter: StepMeter) {
        self.meter = meter
        lanes = DeliveryLane.allCases.map { _ in DueQueue(meter: meter) }
        held = HeldQueue(meter: meter)
        intervals = IntervalQueue(meter: meter)
    }

    /// The number of all due notifications.
    private var dueCount: Int { laneCount + held.released.count }

    /// The number of all notifications: due, held and throttled.
    var count: Int { laneCount + held.count + intervals.count }
    /// The size of all notifications that counts against the limits, in bytes.
    var byteCount: Int { laneByteCount + held.byteCount + intervals.byteCount }
    /// The size of the state of minimum intervals, in bytes. It includes intervals for which nothing waits.
    var intervalBytes: Int { intervals.stateBytes }
    var isEmpty: Bool { count == 0 }
    /// Whether any notification is due.
    var hasDue: Bool { dueCount > 0 }
    /// Whether any notification is held. Formerly held notifications that are due do not count.
    var hasHeld: Bool { held.count > held.released.count }

    /// Whether nothing is due in a lane.
    func isEmpty(_ lane: DeliveryLane) -> Bool { count(in: lane) == 0 }

    /// The next due notification of a lane. Flushed notifications belong to the lane ``DeliveryLane/flushed`` alone.
    func first(in lane: DeliveryLane) -> DueQueue.Entry? {
        guard lane == .flushed else { return lanes[lane.rawValue].firstUnflushed }
        return switch flushedSource {
        case .lane(let lane)?: lanes[lane.rawValue].first
        case .held?: held.firstReleased.map(Self.due)
        case nil: nil
        }
    }

    /// The entry of a formerly held notification as a due one.
    private static func due(_ entry: HeldQueue.Entry) -> DueQueue.Entry {
        DueQueue.Entry(notification: entry.notification, observers: entry.observers)
    }

    /// The queue that has a flushed notification.
    private enum Source {
        case lane(DeliveryLane)
        case held
    }

    /// The queue with the oldest flushed notification; nil when there is none.
    private var flushedSource: Source? {
        var (source, serial): (Source?, UInt64) = (nil, .max)
        if let entry = held.firstReleased { (source, serial) = (.held, entry.notification.serial) }
        for lane in DeliveryLane.allCases {
            let entry = lane == .flushed ? lanes[lane.rawValue].first : lanes[lane.rawValue].firstFlushed
            if let entry, entry.notification.serial < serial {
                (source, serial) = (.lane(lane), entry.notification.serial)
            }
        }
        return source
    }

    /// The size of the next due notification over all lanes, in bytes; nil when none is due.
    var sizeOfNext: Int? {
        DeliveryLane.allCases.first { !isEmpty($0) }.flatMap { first(in: $0) }?.byteCount
    }

    /// The content of the queue at one moment.
    struct Snapshot {
        fileprivate let lanes: [DueQueue]
        /// The held and the formerly held notifications.
        fileprivate let entries: HeldQueue.Snapshot
        /// The throttled notifications.
        let throttled: [(notification: Notification, observers: [ObserverID])]

        /// The due notifications, lane by lane, each lane in its order.
        var due: [(entry: DueQueue.Entry, lane: DeliveryLane)] {
            var flushed: [DueQueue.Entry] = entries.all.prefix(entries.releasedCount).map(DeliveryQueue.due)
            for lane in DeliveryLane.allCases {
                let queue = lanes[lane.rawValue]
                flushed += queue.all.prefix(lane == .flushed ? queue.count : queue.flushedCount)
            }
            if flushed.count > 1 { flushed.sort { $0.notification.serial < $1.notification.serial } }
            var due = flushed.map { (entry: $0, lane: DeliveryLane.flushed) }
            for lane in DeliveryLane.allCases where lane != .flushed {
                let queue = lanes[lane.rawValue]
                due += queue.all.dropFirst(queue.flushedCount).map { ($0, lane) }
            }
            return due
        }

        /// The held notifications, in their order.
        var held: some Sequence<HeldQueue.Entry> { entries.all.dropFirst(entries.releasedCount) }
    }

    /// The content at this moment. Only the throttled notifications are copied; the rest shares the memory of the
    /// queue.
    var snapshot: Snapshot {
        var throttled: [(notification: Notification, observers: [ObserverID])] = []
        forEachThrottled { throttled.append(($0, $1)) }
        meter.count(throttled.count)
        return Snapshot(lanes: lanes, entries: held.snapshot, throttled: throttled)
    }

    /// Calls `body` with each due notification, lane by lane, each lane in its order.
    func forEachDue(_ body: (DueQueue.Entry, DeliveryLane) -> Void) {
        meter.count(dueCount)
        for (entry, lane) in snapshot.due { body(entry, lane) }
    }

    /// Counts the due and the held notifications that satisfy `isWanted`.
    func count(where isWanted: (Notification) -> Bool) -> (due: Int, held: Int) {
        meter.count(laneCount)
        var count = held.count(where: isWanted)
        for lane in lanes { count.due += lane.count(where: isWanted) }
        return count
    }

    /// Returns the newest held notifications, at most `most` of them, the oldest first.
    func newestHeld(_ most: Int) -> [HeldQueue.Entry] {
        held.newest(min(most, held.count - held.released.count))
    }

    /// The time of the next check of throttled notifications, as ``Clock/uptime``; nil when there are none.
    var firstIntervalEnd: Int64? { mutating get { intervals.firstEnd } }
    /// Whether there are throttled notifications.
    var waitsForIntervals: Bool { !intervals.isEmpty }
    /// The number of throttled notifications.
    var countOfIntervals: Int { intervals.count }
    /// The number of pairs of a throttled notification and an observer that waits for it.
    var countOfWaits: Int { intervals.waitingCount }

    /// The allocated capacity of the held queue, in entries, for inspection.
    var heldPlaces: Int { held.places }

    /// The number of observers with an interval of a key.
    func countOfMarks(of key: NotificationKey) -> Int { intervals.countOfMarks(of: key) }

    /// Calls `body` with each throttled notification and its waiting observers, in the order of the serials.
    func forEachThrottled(_ body: (Notification, [ObserverID]) -> Void) {
        intervals.forEach(body)
    }

    /// Returns the microseconds that a new notification would wait for the interval of an observer; nil when it would
    /// not wait.
    func waitForInterval(of key: NotificationKey, for observer: ObserverID, now: Int64) -> Int64? {
        intervals.wait(of: key, for: observer, now: now)
    }

    /// Changes the throttled notifications. Another one may then be the next, so the blocked one is forgotten.
    mutating func changeIntervals<Result>(_ change: (inout IntervalQueue) -> Result) -> Result {
        throttledOnQuota = nil
        return change(&intervals)
    }

    /// Takes a notification for observers with intervals (``IntervalQueue/admit(_:for:now:)``).
    ///
    /// - Returns:
    ///   - `admitted`: the observers that get it now. The others wait for the end of their intervals.
    ///   - `hasReplaced`: whether it replaced an older throttled notification.
    ///   - `isBlockedSizeReduced`: whether the replaced one was blocked on the in-flight quota and larger. The new one
    ///     may fit.
    mutating func admit(
        _ notification: Notification, for intervalObservers: [IntervalQueue.IntervalObserver], now: Int64
    ) -> (admitted: [ObserverID], hasReplaced: Bool, isBlockedSizeReduced: Bool) {
        let before = throttledOnQuota
        let (admitted, hasReplaced) = intervals.admit(notification, for: intervalObservers, now: now)
        let isBlockedSizeReduced =
            before.map { $0.byteCount > notification.byteCount && $0.key == notification.key && hasReplaced } ?? false
        if isBlockedSizeReduced { throttledOnQuota = nil }
        return (admitted, hasReplaced, isBlockedSizeReduced)
    }

    /// The throttled notification that is due and did not fit into the in-flight quota. It is nil when none is blocked,
    /// or when a change may have made another one the next.
    var throttledOnQuota: BlockedThrottled?

    /// The properties of a throttled notification that is blocked on the in-flight quota. It is a class, because every
    /// client has a field for it and hardly any client uses it.
    final class BlockedThrottled {
        let key: NotificationKey
        /// The size of the notification with its observers, in bytes.
        let byteCount: Int
        /// The time after which it is not delivered, as ``Clock/uptime``, in microseconds; nil for never.
        let expiry: Int64?

        init(_ notification: Notification, byteCount: Int) {
            key = notification.key
            expiry = notification.expiry
            self.byteCount = byteCount
        }
    }

    /// Returns a slice of the throttled notifications that may be sent now. A throttled notification that is newer than
    /// an unsent due one has to wait, so that the order is kept.
    mutating func dueByInterval(now: Int64) -> [IntervalQueue.Due] {
        var oldest = held.firstReleased?.notification.serial ?? .max
        for lane in lanes { oldest = min(oldest, lane.first?.notification.serial ?? .max) }
        return intervals.due(now: now) { $0 < oldest }
    }

    // MARK: Scheduled sends

    /// The number of scheduled sends of the client in a lane of the send schedule. ``SendSchedule`` updates it.
    subscript(scheduledIn lane: DeliveryLane) -> Int {
        get { lanes[lane.rawValue].scheduledCount }
        set { lanes[lane.rawValue].scheduledCount = newValue }
    }

    /// The number of tombstones of the client in a lane of the send schedule; ``SendSchedule`` updates it. They come
    /// before its scheduled sends there.
    subscript(tombstonesIn lane: DeliveryLane) -> Int {
        get { lanes[lane.rawValue].tombstones }
        set { lanes[lane.rawValue].tombstones = newValue }
    }

    /// Whether the client has scheduled sends or tombstones in any lane.
    var hasScheduled: Bool { lanes.contains { $0.scheduledCount != 0 || $0.tombstones != 0 } }

    /// The number of due notifications of a lane.
    func count(in lane: DeliveryLane) -> Int {
        guard lane == .flushed else { return lanes[lane.rawValue].unflushedCount }
        return held.released.count + lanes.reduce(0) { $0 + $1.flushedCount } + lanes[lane.rawValue].unflushedCount
    }

    // MARK: Insertion

    /// Whether a restored notification with this serial may be appended to `lane`. It may not only if the recovery log
    /// is damaged.
    func mayBeDue(_ serial: UInt64, in lane: DeliveryLane) -> Bool {
        let flushed = lanes[DeliveryLane.flushed.rawValue]
        // Flushed notifications are older than all other due ones, and those are older than the held ones.
        guard serial > lanes[lane.rawValue].lastSerial, serial > flushed.lastSerial, serial > held.releasedThrough,
            !hasHeld || held.released.count == 0 && serial < held.firstSerial ?? .max,
            lane != .flushed || dueCount == flushed.count
        else { return false }
        return !lanes.contains { $0.contains(serial) }
    }

    /// Whether a restored notification with this serial may be appended to the held ones.
    func mayBeHeld(_ serial: UInt64) -> Bool {
        serial > held.lastSerial && lanes.allSatisfy { serial > $0.lastSerial }
    }

    /// Adds a due notification at the end of a lane.
    mutating func append(_ entry: DueQueue.Entry, in lane: DeliveryLane) {
        lanes[lane.rawValue].append(entry)
        laneCount += 1
        laneByteCount += entry.byteCount
    }

    /// Adds a held notification. For the observers in `coalescing` it replaces the held notification with the same key.
    ///
    /// - Returns: the number of notifications that were removed, because all of their observers get the new one
    ///   instead.
    mutating func hold(_ notification: Notification, observers: ObserverList, coalescing: ObserverList?) -> Int {
        held.append(notification, observers: observers, coalescing: coalescing)
    }

    // MARK: Removal

    /// Makes all held notifications due, before anything newer (S2). The notifications that were due already join them
    /// in global order, because most of them are older.
    mutating func flush() {
        guard hasHeld else { return }
        for lane in lanes.indices where lane != DeliveryLane.flushed.rawValue { lanes[lane].flush() }
        held.release()
    }

    /// Takes the first due notification of `lane`. The result is nil for another lane than ``DeliveryLane/flushed`` as
    /// long as its oldest entries are flushed.
    mutating func popDue(_ lane: DeliveryLane) -> DueQueue.Entry? {
        guard lane == .flushed else { return lanes[lane.rawValue].flushedCount > 0 ? nil : pop(lane) }
        return switch flushedSource {
        case .lane(let lane)?: pop(lane)
        case .held?: held.popFirst().map(Self.due)
        case nil: nil
        }
    }

    /// Takes the first entry of a lane, flushed or not, and updates the totals.
    private mutating func pop(_ lane: DeliveryLane) -> DueQueue.Entry? {
        guard let entry = lanes[lane.rawValue].popFirst() else { return nil }
        laneCount -= 1
        laneByteCount -= entry.byteCount
        invariant(
            laneByteCount >= 0 && (laneCount == 0) == (laneByteCount == 0),
            "E1: the totals of due notifications are the sums of the lanes")
        return entry
    }

    /// Removes the due notification with this serial, and the ones before it in its lane. The recovery uses it for
    /// notifications that an earlier process may have sent.
    ///
    /// While flushed notifications are left, they are taken first, over all lanes in the order of their serials.
    mutating func take(through serial: UInt64) {
        var lanes = DeliveryLane.allCases.filter { self.lanes[$0.rawValue].contains(serial) }
        if held.hasReleased(serial) { lanes.append(.flushed) }
        for lane in lanes {
            while let first = first(in: isEmpty(.flushed) ? lane : .flushed), first.notification.serial <= serial {
                meter.count()
                _ = popDue(isEmpty(.flushed) ? lane : .flushed)
            }
        }
    }

    /// Removes the oldest notification of all, due, held or throttled, because a limit was reached.
    ///
    /// - Returns: the observers that lose it.
    mutating func dropOldest() -> ObserverList? {
        // The oldest due notification is the first of its lane.
        let oldestDue = DeliveryLane.allCases.compactMap { lane in
            lanes[lane.rawValue].first.map { (serial: $0.notification.serial, lane: lane) }
        }.min { $0.serial < $1.serial }
        let oldestHeld = held.firstSerial
        let oldestThrottled = intervals.firstSerial
        if let oldestThrottled, oldestThrottled < min(oldestDue?.serial ?? .max, oldestHeld ?? .max) {
            return intervals.dropOldest()
        }
        if let oldestDue, oldestHeld.map({ oldestDue.serial <= $0 }) ?? true {
            return pop(oldestDue.lane)?.observers
        }
        return held.popFirst()?.observers
    }

    /// Removes observers from all notifications. A notification without observers is not delivered (S1).
    mutating func remove(_ removed: Set<ObserverID>) {
        intervals.remove(removed)
        guard !isEmpty else { return }
        if hasDue {
            for lane in lanes.indices { lanes[lane].remove(removed) }
            laneCount = lanes.reduce(0) { $0 + $1.count }
            laneByteCount = lanes.reduce(0) { $0 + $1.byteCount }
        }
        held.remove(removed)
    }

    /// Removes at most `most` notifications, the oldest first: a slice of the state of a client that left the bus.
    /// Their scheduled sends stay, and send nothing.
    mutating func removeSome(_ most: Int) {
        var left = most
        while left > 0, dropOldest() != nil { left -= 1 }
        meter.count(most - left)
    }

    /// Removes all notifications. Their scheduled sends stay, and send nothing.
    mutating func removeAll() {
        for lane in lanes.indices { lanes[lane].removeAll() }
        (laneCount, laneByteCount) = (0, 0)
        held = HeldQueue(meter: meter)
        intervals = IntervalQueue(meter: meter)
    }

    // MARK: Invariants

    /// Checks all conditions that hold between two events, in debug builds and the simulation.
    ///
    /// - Parameters:
    ///   - client: the client of this queue.
    ///   - lastSerial: the last serial of the center.
    ///   - isObserver: whether the client has this observer.
    func checkInvariants(
        of client: ClientName, lastSerial: UInt64, isObserver: (ObserverID) -> Bool
    ) throws(BrokenInvariant) {
        var known: ObserverList?
        func check(
            _ notification: Notification, _ observers: ObserverList, after serial: inout UInt64
        ) throws(BrokenInvariant) {
            try require(notification.serial > serial, "D4: notifications for \(client) are in order")
            serial = notification.serial
            guard observers != known else { return }
            known = observers
            try require(!observers.ids.isEmpty, "S1: notification \(serial) has observers")
            try require(
                observers.ids.allSatisfy(isObserver),
                "D8: \(serial) waits for observers that \(client) has: \(observers.ids.map(\.rawValue))")
        }
        var sum = (count: 0, byteCount: 0)
        for lane in lanes where !lane.isEmpty || lane.byteCount != 0 {
            var (serial, bytes): (UInt64, Int) = (0, 0)
            for entry in lane.all {
                try check(entry.notification, entry.observers, after: &serial)
                bytes += entry.byteCount
            }
            try require(bytes == lane.byteCount, "E1: the bytes of a lane are their sum")
            try require(serial <= lane.lastSerial && lane.lastSerial <= lastSerial, "D4: no serial is from the future")
            sum = (sum.count + lane.count, sum.byteCount + bytes)
        }
        try require(sum == (laneCount, laneByteCount), "E1: the totals of due notifications are the sums of the lanes")
        try require(
            lanes.allSatisfy { $0.flushedCount >= 0 && $0.flushedCount <= $0.count }
                && lanes[DeliveryLane.flushed.rawValue].flushedCount == 0,
            "S2: the count of flushed entries is within the lane")
        try intervals.checkInvariants()
        var throttled: [ObserverID] = []
        intervals.forEach { throttled += $1 }
        try require(throttled.allSatisfy(isObserver), "D8: \(client) has the observers that wait for intervals")
        guard held.count > 0 else { return try held.checkInvariants() }
        var serial: UInt64 = 0
        for entry in held.all {
            try check(entry.notification, entry.observers, after: &serial)
        }
        try require(serial <= held.lastSerial && held.lastSerial <= lastSerial, "D4: no serial is from the future")
        try held.checkInvariants()
    }
}
