// SPDX-License-Identifier: Apache-2.0
/// The notifications that wait for one client.
///
/// **Due** ones go out as soon as the client reads and their lane has its turn: the more urgent lane first (M6), and within
/// a lane in global order. Those that are **held** for a suspended client stay, in global order over all its observers and
/// behaviors (S2), until it is resumed or something flushes it. A notification that waits for the end of an **interval** (R5)
/// is apart from both: it goes straight to the client.
struct DeliveryQueue {
    private var lanes: [DueQueue]
    private var held: HeldQueue
    private var intervals: IntervalQueue
    private let meter: StepMeter
    private var dueCount = 0
    private var dueByteCount = 0

    init(meter: StepMeter) {
        self.meter = meter
        lanes = DeliveryLane.allCases.map { _ in DueQueue(meter: meter) }
        held = HeldQueue(meter: meter)
        intervals = IntervalQueue(meter: meter)
    }

    var count: Int { dueCount + held.count + intervals.count }
    var byteCount: Int { dueByteCount + held.byteCount + intervals.byteCount }
    var isEmpty: Bool { count == 0 }
    var hasDue: Bool { dueCount > 0 }
    var hasHeld: Bool { held.count > 0 }

    func isEmpty(_ lane: DeliveryLane) -> Bool { lanes[lane.rawValue].isEmpty }

    func first(in lane: DeliveryLane) -> DueQueue.Entry? { lanes[lane.rawValue].first }

    /// The size of what is due first; nil when nothing is.
    var sizeOfNext: Int? { lanes.first { !$0.isEmpty }?.first?.byteCount }

    func forEachDue(_ body: (DueQueue.Entry, DeliveryLane) -> Void) {
        meter.count(dueCount)
        for lane in DeliveryLane.allCases { lanes[lane.rawValue].all.forEach { body($0, lane) } }
    }

    func forEachHeld(_ body: (HeldQueue.Entry) -> Void) {
        meter.count(held.count)
        held.all.forEach(body)
    }

    /// When to look at what waits for intervals, as ``Clock/uptime``; nil when nothing does.
    var firstIntervalEnd: Int64? { intervals.firstEnd }
    var waitsForIntervals: Bool { !intervals.isEmpty }
    var countOfIntervals: Int { intervals.count }

    func forEachDelayed(_ body: (Notification, [ObserverID]) -> Void) {
        intervals.forEach(body)
    }

    /// How long a notification would wait for an observer's interval, in microseconds; nil when it would not.
    func waitForInterval(of kind: NotificationKind, for observer: ObserverID, now: Int64) -> Int64? {
        intervals.wait(of: kind, for: observer, now: now)
    }

    /// Changes what waits for intervals.
    mutating func changeIntervals<Result>(_ change: (inout IntervalQueue) -> Result) -> Result {
        change(&intervals)
    }

    /// What may go of that now.
    mutating func dueByInterval(
        now: Int64
    ) -> [(notification: Notification, observers: [ObserverID], isImmediate: Bool)] {
        intervals.due(now: now) { [lanes] serial in
            lanes.allSatisfy { $0.first.map { $0.notification.serial > serial } ?? true }
        }
    }

    // MARK: Turns

    subscript(turnsOf lane: DeliveryLane) -> Int {
        get { lanes[lane.rawValue].turns }
        set { lanes[lane.rawValue].turns = newValue }
    }

    /// Turns in the line of `lane` that are void, before all others of the client there.
    subscript(voidTurnsOf lane: DeliveryLane) -> Int {
        get { lanes[lane.rawValue].voidTurns }
        set { lanes[lane.rawValue].voidTurns = newValue }
    }

    var hasTurns: Bool { lanes.contains { $0.turns != 0 || $0.voidTurns != 0 } }

    func count(in lane: DeliveryLane) -> Int { lanes[lane.rawValue].count }

    // MARK: Putting in

    /// Whether a notification with this serial may come to what is due in `lane`. In a log that is whole it always may.
    func mayBeDue(_ serial: UInt64, in lane: DeliveryLane) -> Bool {
        let flushed = lanes[DeliveryLane.flushed.rawValue]
        // What was flushed is older than the rest of what is due, and all of that is older than what is held.
        guard serial > lanes[lane.rawValue].lastSerial, serial > flushed.lastSerial,
            serial < held.firstSerial ?? .max, lane != .flushed || dueCount == flushed.count
        else { return false }
        return !lanes.contains { $0.contains(serial) }
    }

    /// The same for one that is held.
    func mayBeHeld(_ serial: UInt64) -> Bool {
        serial > held.lastSerial && lanes.allSatisfy { serial > $0.lastSerial }
    }

    /// Adds a notification that shall go out as soon as its lane has its turn.
    mutating func append(_ entry: DueQueue.Entry, in lane: DeliveryLane) {
        lanes[lane.rawValue].append(entry)
        dueCount += 1
        dueByteCount += entry.byteCount
    }

    /// Holds a notification. For the observers in `coalescing` it takes the place of what is held for them of its
    /// kind.
    ///
    /// - Returns: how many notifications it replaced altogether.
    mutating func hold(_ notification: Notification, observers: ObserverList, coalescing: ObserverList?) -> Int {
        held.append(notification, observers: observers, coalescing: coalescing)
    }

    // MARK: Taking out

    /// Makes all that is held due, before anything newer (S2). What was due already is among it, in global order: most
    /// of it is older.
    mutating func flush() {
        guard hasHeld else { return }
        var entries: [DueQueue.Entry] = []
        entries.reserveCapacity(count)
        for lane in DeliveryLane.allCases where lane != .flushed {
            while let entry = popDue(lane) { entries.append(entry) }
        }
        held.popAll { entry in
            entries.append(DueQueue.Entry(notification: entry.notification, observers: entry.observers))
        }
        meter.count(2 * entries.count)
        meter.countSort(of: entries.count)
        // What was flushed before is older than all of these.
        entries.sort { $0.notification.serial < $1.notification.serial }
        for entry in entries { append(entry, in: .flushed) }
    }

    /// Takes the first that is due in `lane`.
    mutating func popDue(_ lane: DeliveryLane) -> DueQueue.Entry? {
        guard let entry = lanes[lane.rawValue].popFirst() else { return nil }
        dueCount -= 1
        dueByteCount -= entry.byteCount
        invariant(
            dueByteCount >= 0 && (dueCount == 0) == (dueByteCount == 0), "E1: what is due is the sum of the lanes")
        return entry
    }

    /// Takes the notification with this serial, if it is due, and those before it in its lane, with which it went.
    mutating func take(through serial: UInt64) {
        for lane in DeliveryLane.allCases where lanes[lane.rawValue].contains(serial) {
            while let first = lanes[lane.rawValue].first, first.notification.serial <= serial {
                meter.count()
                _ = popDue(lane)
            }
        }
    }

    /// Takes what was posted first of all, due or held: what goes when there is no room. Within each lane it is the
    /// first.
    ///
    /// - Returns: the observers that miss it.
    mutating func dropOldest() -> [ObserverID]? {
        let oldestDue = DeliveryLane.allCases.compactMap { lane in
            lanes[lane.rawValue].first.map { (serial: $0.notification.serial, lane: lane) }
        }.min { $0.serial < $1.serial }
        let oldestHeld = held.firstSerial
        let oldestDelayed = intervals.firstSerial
        if let oldestDelayed, oldestDelayed < min(oldestDue?.serial ?? .max, oldestHeld ?? .max) {
            return intervals.dropOldest()
        }
        if let oldestDue, oldestHeld.map({ oldestDue.serial <= $0 }) ?? true {
            return popDue(oldestDue.lane)?.observers.ids
        }
        return held.popFirst()?.observers.ids
    }

    /// Takes the observers out of everything; what has no observer left is not delivered (S1).
    mutating func remove(_ removed: Set<ObserverID>) {
        intervals.remove(removed)
        guard !isEmpty else { return }
        if hasDue {
            for lane in lanes.indices { lanes[lane].remove(removed) }
            meter.count(dueCount)
            dueCount = lanes.reduce(0) { $0 + $1.count }
            dueByteCount = lanes.reduce(0) { $0 + $1.byteCount }
        }
        held.remove(removed)
    }

    /// Takes everything; turns that were given stay, and are void.
    mutating func removeAll() {
        for lane in lanes.indices { lanes[lane].removeAll() }
        (dueCount, dueByteCount) = (0, 0)
        held = HeldQueue(meter: meter)
        intervals = IntervalQueue(meter: meter)
    }

    // MARK: Invariants

    /// - Parameters:
    ///   - client: whose queue it is.
    ///   - lastSerial: the center's.
    ///   - isObserver: whether the client has this observer.
    func checkInvariants(
        of client: ClientName, lastSerial: UInt64, isObserver: (ObserverID) -> Bool
    ) throws(BrokenInvariant) {
        var known: ObserverList?
        func check(
            _ notification: Notification, _ observers: ObserverList, after serial: inout UInt64
        ) throws(BrokenInvariant) {
            try require(notification.serial > serial, "D4: what waits for \(client) is in order")
            serial = notification.serial
            guard observers != known else { return }
            known = observers
            try require(!observers.ids.isEmpty, "S1: \(serial) waits for somebody")
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
        try require(sum == (dueCount, dueByteCount), "E1: what is due is the sum of the lanes")
        try intervals.checkInvariants()
        var delayed: [ObserverID] = []
        intervals.forEach { delayed += $1 }
        try require(delayed.allSatisfy(isObserver), "D8: \(client) has the observers that wait for intervals")
        guard held.count > 0 else { return try held.checkInvariants() }
        var serial: UInt64 = 0
        for entry in held.all {
            try check(entry.notification, entry.observers, after: &serial)
        }
        try require(serial <= held.lastSerial && held.lastSerial <= lastSerial, "D4: no serial is from the future")
        try held.checkInvariants()
    }
}
