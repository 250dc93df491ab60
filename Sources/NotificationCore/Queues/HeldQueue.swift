import Collections

/// What is held for a suspended client, in global order over all its observers and behaviours (S2).
///
/// Entries can coalesce: by (observer, name, object) only the newest stays, at its place at the tail (S1).
struct HeldQueue {
    struct Entry {
        let notification: Notification
        /// In registration order; never empty while the entry is in the queue.
        var observers: [ObserverID]
        /// Those of them for which a newer notification takes this one's place.
        var coalescing: [ObserverID]
        let byteCount: Int
    }

    private struct CoalescingKey: Hashable {
        let observer: ObserverID
        let name: ExactText
        let object: ExactText

        init(_ observer: ObserverID, _ notification: Notification) {
            self.observer = observer
            name = ExactText(notification.name)
            object = ExactText(notification.object)
        }
    }

    /// Nil where an entry was taken out of the middle.
    private var slots: [Entry?] = []
    /// The first slot that may hold an entry.
    private var head = 0
    /// Where the newest entry of a key is.
    private var newest: [CoalescingKey: Int] = [:]

    private(set) var count = 0
    private(set) var byteCount = 0

    /// The greatest serial that was ever in it.
    private(set) var lastSerial: UInt64 = 0

    var all: some Sequence<Entry> { slots[head...].lazy.compactMap(\.self) }

    /// The serial of the oldest entry.
    var firstSerial: UInt64? {
        guard count > 0 else { return nil }
        return slots[head...].first { $0 != nil }??.notification.serial
    }

    /// Adds a notification. For the observers in `coalescing` it takes the place of what they have of this name and
    /// object.
    ///
    /// - Returns: how many notifications it replaced altogether.
    mutating func append(_ notification: Notification, observers: [ObserverID], coalescing: [ObserverID]) -> Int {
        invariant(notification.serial > lastSerial, "S2: what is held is in global order")
        lastSerial = notification.serial
        var replaced = 0
        for observer in coalescing {
            let key = CoalescingKey(observer, notification)
            if let slot = newest[key], take(observer, outOf: slot) { replaced += 1 }
            newest[key] = slots.count
        }
        let byteCount = notification.byteCount
        slots.append(
            Entry(notification: notification, observers: observers, coalescing: coalescing, byteCount: byteCount))
        count += 1
        self.byteCount += byteCount
        compactIfSparse()
        return replaced
    }

    /// Takes the oldest entry.
    mutating func popFirst() -> Entry? {
        while head < slots.count {
            let slot = head
            let entry = slots[slot]
            if entry != nil { clear(slot) }
            head += 1
            if let entry {
                // Forgets that it was the newest of its kind, unless that was a later one.
                for observer in entry.coalescing {
                    let key = CoalescingKey(observer, entry.notification)
                    if newest[key] == slot { newest[key] = nil }
                }
            }
            if head == slots.count {
                invariant(count == 0 && byteCount == 0, "E1: what is held is the sum of its entries")
                // Used again from the start, unless much was held.
                let isSmall = slots.count <= 1024
                slots.removeAll(keepingCapacity: isSmall)
                newest.removeAll(keepingCapacity: isSmall)
                head = 0
            }
            if let entry { return entry }
        }
        return nil
    }

    /// Takes the observers out of everything; what has no observer left is not delivered (S1).
    mutating func remove(_ removed: Set<ObserverID>) {
        guard count > 0 else { return }
        for slot in head..<slots.count {
            guard let entry = slots[slot], entry.observers.contains(where: removed.contains) else { continue }
            slots[slot]!.observers.removeAll(where: removed.contains)
            slots[slot]!.coalescing.removeAll(where: removed.contains)
            if slots[slot]!.observers.isEmpty { clear(slot) }
        }
        newest = newest.filter { !removed.contains($0.key.observer) }
        compactIfSparse()
    }

    /// - Returns: whether that was the entry's last observer, so that it is gone.
    private mutating func take(_ observer: ObserverID, outOf slot: Int) -> Bool {
        slots[slot]!.observers.removeAll { $0 == observer }
        slots[slot]!.coalescing.removeAll { $0 == observer }
        guard slots[slot]!.observers.isEmpty else { return false }
        clear(slot)
        return true
    }

    func checkInvariants() throws(BrokenInvariant) {
        let sum = all.reduce((count: 0, byteCount: 0)) { ($0.count + 1, $0.byteCount + $1.byteCount) }
        try require(sum == (count, byteCount), "E1: what is held is the sum of its entries")
        try require(slots[..<head].allSatisfy { $0 == nil }, "S2: nothing is held in front of the first")
        var kinds = 0
        for (slot, entry) in slots.enumerated() {
            guard let entry else { continue }
            kinds += entry.coalescing.count
            for observer in entry.coalescing {
                try require(entry.observers.contains(observer), "S1: what coalesces is for an observer of the entry")
                try require(
                    newest[CoalescingKey(observer, entry.notification)] == slot,
                    "S1: \(entry.notification.serial) is the newest of its kind for observer \(observer.rawValue)")
            }
        }
        try require(kinds == newest.count, "S1: the newest of a kind is held")
    }

    private mutating func clear(_ slot: Int) {
        count -= 1
        byteCount -= slots[slot]!.byteCount
        slots[slot] = nil
    }

    /// Gives empty slots back when there are more of them than entries.
    private mutating func compactIfSparse() {
        guard slots.count > 2 * count + 64 else { return }
        slots = slots[head...].filter { $0 != nil }
        head = 0
        newest.removeAll(keepingCapacity: true)
        for (slot, entry) in slots.enumerated() {
            for observer in entry!.coalescing { newest[CoalescingKey(observer, entry!.notification)] = slot }
        }
    }
}
