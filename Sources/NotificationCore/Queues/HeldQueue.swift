// SPDX-License-Identifier: Apache-2.0
/// The notifications that are held for a suspended client, in global order over all its observers and behaviors (S2).
///
/// Entries can coalesce: by observer and ``NotificationKind`` only the newest stays, at its place at the tail (S1). All
/// observers that coalesce and matched a notification match the next of its kind too, unless they were removed. So for
/// each kind one entry has all of them, and coalescing costs as much as that has observers.
struct HeldQueue {
    struct Entry {
        let notification: Notification
        var observers: ObserverList
        /// Those of them for which a newer notification takes this one's place; nil when there is none.
        var coalescing: ObserverList?
        /// What it counts against the limits: also the lists, however many others have the same ones.
        var byteCount: Int { notification.byteCount + observers.byteCount + (coalescing?.byteCount ?? 0) }
    }

    private let meter: StepMeter
    /// Nil where an entry was taken out.
    private var slots: [Entry?] = []
    /// The first slot that has an entry.
    private var head = 0
    /// Where the entry is whose observers coalesce with the next of the kind.
    private var newest: [NotificationKind: Int] = [:]

    private(set) var count = 0
    private(set) var byteCount = 0
    /// The greatest serial that was ever in it.
    private(set) var lastSerial: UInt64 = 0

    init(meter: StepMeter) {
        self.meter = meter
    }

    var all: some Sequence<Entry> { slots[head...].lazy.compactMap(\.self) }

    /// The serial of the oldest entry.
    var firstSerial: UInt64? { count > 0 ? slots[head]?.notification.serial : nil }

    /// Adds a notification. For the observers in `coalescing`, which are some of `observers`, it takes the place of what
    /// they have of its kind.
    ///
    /// - Returns: how many notifications it replaced altogether.
    mutating func append(_ notification: Notification, observers: ObserverList, coalescing: ObserverList?) -> Int {
        invariant(notification.serial > lastSerial, "S2: what is held is in global order")
        lastSerial = notification.serial
        let last = slots.last.flatMap(\.self)
        let observers = observers.shared(with: last?.observers)
        let coalescing = coalescing?.shared(with: observers).shared(with: last?.coalescing)
        let before = count
        if let coalescing {
            let kind = notification.kind
            if let slot = newest[kind] { replace(coalescing, in: slot) }
            newest[kind] = slots.count
        }
        let replaced = before - count
        let entry = Entry(notification: notification, observers: observers, coalescing: coalescing)
        slots.append(entry)
        count += 1
        byteCount += entry.byteCount
        compactIfSparse()
        return replaced
    }

    /// Takes the oldest entry.
    mutating func popFirst() -> Entry? {
        guard count > 0, let entry = slots[head] else { return nil }
        if entry.coalescing != nil { newest[entry.notification.kind] = nil }
        clear(head)
        compactIfSparse()
        return entry
    }

    /// Takes all entries, the oldest first.
    mutating func popAll(_ body: (Entry) -> Void) {
        meter.count(slots.count - head)
        all.forEach(body)
        (count, byteCount) = (0, 0)
        becomeEmpty()
    }

    /// Takes the observers out of everything; what has no observer left is not delivered (S1).
    mutating func remove(_ removed: Set<ObserverID>) {
        guard count > 0 else { return }
        meter.count(slots.count - head)
        var taking = ObserverList.Removal(removed, meter: meter)
        var takingCoalescing = ObserverList.Removal(removed, meter: meter)
        for slot in head..<slots.count {
            guard let entry = slots[slot] else { continue }
            let coalescing = entry.coalescing.flatMap { takingCoalescing($0) }
            if entry.coalescing != nil, coalescing == nil { newest[entry.notification.kind] = nil }
            if let observers = taking(entry.observers) {
                change(slot, to: observers, coalescing)
            } else {
                clear(slot)
                if count == 0 { return }
            }
        }
        compactIfSparse()
    }

    /// Takes the observers for which a newer notification comes out of the entry that was the newest.
    private mutating func replace(_ coalescing: ObserverList, in slot: Int) {
        let entry = slots[slot]!
        meter.count(entry.observers.count)
        guard entry.observers != coalescing, let rest = entry.observers.removing(Set(coalescing.ids)) else {
            return clear(slot)
        }
        change(slot, to: rest, nil)
    }

    private mutating func change(_ slot: Int, to observers: ObserverList, _ coalescing: ObserverList?) {
        byteCount -= slots[slot]!.byteCount
        slots[slot]!.observers = observers
        slots[slot]!.coalescing = coalescing
        byteCount += slots[slot]!.byteCount
    }

    private mutating func clear(_ slot: Int) {
        count -= 1
        byteCount -= slots[slot]!.byteCount
        slots[slot] = nil
        invariant(byteCount >= 0 && (count == 0) == (byteCount == 0), "E1: what is held is the sum of its entries")
        guard count > 0 else { return becomeEmpty() }
        while slots[head] == nil {
            meter.count()
            head += 1
        }
    }

    /// The memory is used again, unless much was held.
    private mutating func becomeEmpty() {
        let isSmall = slots.count <= 1024
        slots.removeAll(keepingCapacity: isSmall)
        newest.removeAll(keepingCapacity: isSmall)
        head = 0
    }

    /// Gives empty slots back when there are more of them than entries.
    private mutating func compactIfSparse() {
        guard slots.count > Self.mostSlots(count) else { return }
        meter.count(slots.count)
        slots = slots[head...].filter { $0 != nil }
        head = 0
        newest.removeAll(keepingCapacity: true)
        for (slot, entry) in slots.enumerated() where entry?.coalescing != nil {
            newest[entry!.notification.kind] = slot
        }
    }

    private static func mostSlots(_ count: Int) -> Int { 2 * count + 64 }

    func checkInvariants() throws(BrokenInvariant) {
        let sum = all.reduce((count: 0, byteCount: 0)) { ($0.count + 1, $0.byteCount + $1.byteCount) }
        try require(sum == (count, byteCount), "E1: what is held is the sum of its entries")
        try require(slots.count <= Self.mostSlots(count), "E4: what is held takes as much room as there is of it")
        try require(
            slots[..<head].allSatisfy { $0 == nil } && (slots.isEmpty || slots[head] != nil),
            "S2: the first that is held is at the head")
        var kinds = 0
        for (slot, entry) in slots.enumerated() {
            guard let entry, let coalescing = entry.coalescing else { continue }
            kinds += 1
            try require(
                entry.observers == coalescing || Set(entry.observers.ids).isSuperset(of: coalescing.ids),
                "S1: what coalesces is for observers of the entry")
            try require(
                newest[entry.notification.kind] == slot, "S1: \(entry.notification.serial) is the newest of its kind")
        }
        try require(kinds == newest.count, "S1: the newest of a kind is held")
    }
}
