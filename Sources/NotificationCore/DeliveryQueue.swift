/// What waits for one client, in global order over all its observers and behaviours (S2).
///
/// The front part is **due**: it goes out as soon as the client reads. The rest is **held** until the client is resumed
/// or something flushes it. Entries become due only all together, from the front, so the order never changes.
///
/// Held entries can coalesce: by (observer, name, object) only the newest stays, at its place at the tail (S1).
struct DeliveryQueue {
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
    /// The slots before this one are due.
    private var dueEnd = 0
    /// Where the newest held entry of a key is.
    private var newest: [CoalescingKey: Int] = [:]

    private(set) var count = 0
    private(set) var byteCount = 0

    var isEmpty: Bool { count == 0 }

    func forEach(_ body: (Entry, _ isDue: Bool) -> Void) {
        for slot in head..<slots.count {
            if let entry = slots[slot] { body(entry, slot < dueEnd) }
        }
    }

    // MARK: Putting in

    /// Adds a notification that shall go out as soon as possible. Nothing may be held: ``flush()`` comes first.
    mutating func appendDue(_ notification: Notification, observers: [ObserverID]) {
        precondition(dueEnd == slots.count, "what is due never stands behind what is held")
        append(notification, observers: observers, coalescing: [])
        compactIfSparse()
        dueEnd = slots.count
    }

    /// Holds a notification. For the observers in `coalescing` it takes the place of what they have of this name and
    /// object.
    ///
    /// - Returns: how many notifications it replaced altogether.
    mutating func hold(_ notification: Notification, observers: [ObserverID], coalescing: [ObserverID]) -> Int {
        var replaced = 0
        for observer in coalescing {
            let key = CoalescingKey(observer, notification)
            if let slot = newest[key], take(observer, outOf: slot) { replaced += 1 }
            newest[key] = slots.count
        }
        append(notification, observers: observers, coalescing: coalescing)
        compactIfSparse()
        return replaced
    }

    private mutating func append(_ notification: Notification, observers: [ObserverID], coalescing: [ObserverID]) {
        let byteCount = notification.byteCount
        slots.append(
            Entry(notification: notification, observers: observers, coalescing: coalescing, byteCount: byteCount))
        count += 1
        self.byteCount += byteCount
    }

    // MARK: Taking out

    /// Makes all that is held due.
    mutating func flush() {
        dueEnd = slots.count
        newest.removeAll(keepingCapacity: true)
    }

    /// Takes the first entry that is due.
    mutating func popDue() -> Entry? {
        while head < dueEnd {
            if let entry = takeHead() { return entry }
        }
        return nil
    }

    /// Takes the oldest entry, due or held: what goes when there is no room.
    mutating func dropOldest() -> Entry? {
        while head < slots.count {
            let slot = head
            guard let entry = takeHead() else { continue }
            // Forgets that it was the newest of its kind, unless that was a later one.
            for observer in entry.coalescing {
                let key = CoalescingKey(observer, entry.notification)
                if newest[key] == slot { newest[key] = nil }
            }
            return entry
        }
        return nil
    }

    /// Takes the observers out of everything; what has no observer left is not delivered (S1).
    mutating func remove(_ removed: Set<ObserverID>) {
        guard !isEmpty else { return }
        for slot in head..<slots.count {
            guard let entry = slots[slot], entry.observers.contains(where: removed.contains) else { continue }
            slots[slot]!.observers.removeAll(where: removed.contains)
            slots[slot]!.coalescing.removeAll(where: removed.contains)
            if slots[slot]!.observers.isEmpty { clear(slot) }
        }
        newest = newest.filter { !removed.contains($0.key.observer) }
        compactIfSparse()
    }

    private mutating func takeHead() -> Entry? {
        let entry = slots[head]
        if entry != nil { clear(head) }
        head += 1
        if head == slots.count {
            // Empty: the memory is used again from the start.
            slots.removeAll(keepingCapacity: true)
            newest.removeAll(keepingCapacity: true)
            head = 0
            dueEnd = 0
        }
        return entry
    }

    /// - Returns: whether that was the entry's last observer, so that it is gone.
    private mutating func take(_ observer: ObserverID, outOf slot: Int) -> Bool {
        slots[slot]!.observers.removeAll { $0 == observer }
        slots[slot]!.coalescing.removeAll { $0 == observer }
        guard slots[slot]!.observers.isEmpty else { return false }
        clear(slot)
        return true
    }

    private mutating func clear(_ slot: Int) {
        count -= 1
        byteCount -= slots[slot]!.byteCount
        slots[slot] = nil
    }

    /// Gives empty slots back when there are more of them than entries.
    private mutating func compactIfSparse() {
        guard slots.count > 2 * count + 64 else { return }
        let due = slots[head..<max(head, dueEnd)].compactMap { $0 }
        let held = slots[max(head, dueEnd)...].compactMap { $0 }
        slots = due + held
        head = 0
        dueEnd = due.count
        newest.removeAll(keepingCapacity: true)
        for (offset, entry) in held.enumerated() {
            for observer in entry.coalescing {
                let key = CoalescingKey(observer, entry.notification)
                newest[key] = dueEnd + offset
            }
        }
    }
}
