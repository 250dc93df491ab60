// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The queue of notifications that are held for a suspended client, in global order over all its observers and
/// behaviors (S2).
///
/// Entries can coalesce: for each observer and ``NotificationKey`` only the newest notification stays, at the tail
/// (S1). All observers that coalesce and matched a notification match the next one with its key too, unless they were
/// removed. Therefore a single entry has all coalescing observers of a key, and coalescing costs O(1) for each of them.
///
/// When the client is resumed, all held notifications are **released** at once. They stay in their places, are due from
/// then on in their order, and nothing replaces them any more.
///
/// The entries are a linked list, so that each can be removed in one step.
struct HeldQueue {
    struct Entry {
        let notification: Notification
        var observers: ObserverList
        /// The observers for which a newer notification replaces this one; nil when there are none.
        var coalescing: ObserverList?
        /// The size that counts against the limits when the entry is due, in bytes. It includes the list of observers,
        /// however many other entries share that list.
        var dueBytes: Int { notification.byteCount + observers.byteCount }
        /// The size of the list of coalescing observers, and of its place in ``HeldQueue/newest``, in bytes. A due
        /// entry needs neither.
        var coalescingBytes: Int { Self.bytes(ofCoalescing: coalescing) }

        fileprivate static func bytes(ofCoalescing list: ObserverList?) -> Int {
            list.map { $0.byteCount + sizeInTable } ?? 0
        }

        /// The size of a place in ``HeldQueue/newest``, with the spare capacity of a table, in bytes.
        private static let sizeInTable = 72
    }

    /// A place in the list: the parts of an entry, so that each can be read alone, or a free place.
    fileprivate struct Node {
        /// Nil in a free place.
        var notification: Notification?
        var observers: ObserverList
        var coalescing: ObserverList?
        var previous: Int32
        /// In a free place, the next free place.
        var next: Int32

        init(_ entry: Entry, previous: Int32) {
            (notification, observers, coalescing) = (entry.notification, entry.observers, entry.coalescing)
            self.previous = previous
            next = none
        }

        var entry: Entry? {
            notification.map { Entry(notification: $0, observers: observers, coalescing: coalescing) }
        }

        mutating func free(before next: Int32) {
            (notification, observers, coalescing) = (nil, .many([]), nil)
            previous = none
            self.next = next
        }
    }

    private let meter: StepMeter
    private var nodes: [Node] = []
    private var firstFree = none
    /// The places of the oldest and of the newest entry.
    private var head = none
    private var tail = none
    /// The place of the entry whose observers coalesce with the next notification of the key.
    private var newest = SteadyDictionary<NotificationKey, Int32>()

    private(set) var count = 0
    private(set) var byteCount = 0
    /// The number and size of the released entries, and the last released serial.
    private(set) var released = (count: 0, byteCount: 0)
    private(set) var releasedThrough: UInt64 = 0
    /// The sum of ``Entry/coalescingBytes`` over the entries that were not released; it is part of ``byteCount``.
    private var coalescingBytes = 0
    /// The greatest serial that was ever in the queue.
    private(set) var lastSerial: UInt64 = 0

    init(meter: StepMeter) {
        self.meter = meter
    }

    /// The entries at one moment.
    struct Snapshot {
        fileprivate let nodes: [Node]
        fileprivate let head: Int32
        let releasedCount: Int

        /// The oldest entry first.
        var all: some Sequence<Entry> {
            sequence(state: head) { [nodes] place -> Entry? in
                guard place != none else { return nil }
                defer { place = nodes[Int(place)].next }
                return nodes[Int(place)].entry
            }
        }
    }

    var snapshot: Snapshot { Snapshot(nodes: nodes, head: head, releasedCount: released.count) }

    /// The oldest entry first.
    var all: some Sequence<Entry> { snapshot.all }

    private func entry(at place: Int32) -> Entry? { place == none ? nil : nodes[Int(place)].entry }

    /// The serial of the oldest entry.
    var firstSerial: UInt64? { entry(at: head)?.notification.serial }

    /// The oldest entry, if it was released.
    var firstReleased: Entry? { released.count > 0 ? entry(at: head) : nil }

    /// Whether the queue still has a released entry with this serial.
    func hasReleased(_ serial: UInt64) -> Bool {
        guard released.count > 0, serial <= releasedThrough else { return false }
        meter.count(count)
        return all.contains { $0.notification.serial == serial }
    }

    /// Counts the released and the other notifications that satisfy `isWanted`.
    func count(where isWanted: (Notification) -> Bool) -> (due: Int, held: Int) {
        meter.count(nodes.count)
        var found = (due: 0, held: 0)
        for place in nodes.indices {
            guard let notification = nodes[place].notification, isWanted(notification) else { continue }
            if notification.serial <= releasedThrough { found.due += 1 } else { found.held += 1 }
        }
        return found
    }

    /// Returns the newest entries, in their order.
    func newest(_ count: Int) -> [Entry] {
        meter.count(count)
        var found: [Entry] = []
        var place = tail
        while found.count < count, let entry = entry(at: place) {
            found.append(entry)
            place = nodes[Int(place)].previous
        }
        return found.reversed()
    }

    /// Makes all present entries due.
    mutating func release() {
        byteCount -= coalescingBytes
        coalescingBytes = 0
        released = (count, byteCount)
        releasedThrough = lastSerial
    }

    /// Adds a notification. For the observers in `coalescing`, which are a part of `observers`, it replaces the
    /// notification with the same key.
    ///
    /// - Returns: the number of entries that have no observers left and were removed.
    mutating func append(_ notification: Notification, observers: ObserverList, coalescing: ObserverList?) -> Int {
        invariant(notification.serial > lastSerial, "S2: what is held is in global order")
        lastSerial = notification.serial
        let last = entry(at: tail)
        let observers = observers.shared(with: last?.observers)
        let coalescing = coalescing?.shared(with: observers).shared(with: last?.coalescing)
        let before = count
        if let coalescing, let place = newest[notification.kind], !isReleased(place) { replace(coalescing, in: place) }
        let replaced = before - count
        let entry = Entry(notification: notification, observers: observers, coalescing: coalescing)
        let place = link(entry)
        if coalescing != nil { newest[notification.kind] = place }
        count += 1
        byteCount += entry.dueBytes + entry.coalescingBytes
        coalescingBytes += entry.coalescingBytes
        return replaced
    }

    /// Takes the oldest entry.
    mutating func popFirst() -> Entry? {
        guard let entry = entry(at: head) else { return nil }
        clear(head)
        releaseMemory()
        return entry
    }

    private func isReleased(_ place: Int32) -> Bool { nodes[Int(place)].notification!.serial <= releasedThrough }

    private func isReleased(_ entry: Entry) -> Bool { entry.notification.serial <= releasedThrough }

    /// Removes the observers from all entries. An entry without observers is removed, and not delivered (S1).
    mutating func remove(_ removed: Set<ObserverID>) {
        meter.count(count)
        var taking = ObserverList.Removal(removed, meter: meter)
        var takingCoalescing = ObserverList.Removal(removed, meter: meter)
        var next = head
        while next != none {
            let place = next
            next = nodes[Int(place)].next
            guard let observers = taking(nodes[Int(place)].observers) else {
                clear(place)
                continue
            }
            // The coalescing observers are a part of these.
            guard observers != nodes[Int(place)].observers else { continue }
            change(place, to: observers, nodes[Int(place)].coalescing.flatMap { takingCoalescing($0) })
        }
        releaseMemory()
    }

    /// Removes the observers that a newer notification reaches from the entry that was the newest.
    private mutating func replace(_ coalescing: ObserverList, in place: Int32) {
        let entry = nodes[Int(place)].entry!
        meter.count(entry.observers.count)
        guard entry.observers != coalescing, let rest = entry.observers.removing(coalescing.ids).rest else {
            return clear(place)
        }
        change(place, to: rest, nil)
    }

    private mutating func change(_ place: Int32, to observers: ObserverList, _ coalescing: ObserverList?) {
        if nodes[Int(place)].coalescing != nil, coalescing == nil { forgetNewest(nodes[Int(place)].entry!, at: place) }
        let more = observers.byteCount - nodes[Int(place)].observers.byteCount
        let moreCoalescing =
            Entry.bytes(ofCoalescing: coalescing) - Entry.bytes(ofCoalescing: nodes[Int(place)].coalescing)
        nodes[Int(place)].observers = observers
        nodes[Int(place)].coalescing = coalescing
        byteCount += more
        if isReleased(place) {
            released.byteCount += more
        } else {
            byteCount += moreCoalescing
            coalescingBytes += moreCoalescing
        }
    }

    private mutating func clear(_ place: Int32) {
        let entry = unlink(place)
        if entry.coalescing != nil { forgetNewest(entry, at: place) }
        count -= 1
        byteCount -= entry.dueBytes
        if isReleased(entry) {
            released.count -= 1
            released.byteCount -= entry.dueBytes
        } else {
            byteCount -= entry.coalescingBytes
            coalescingBytes -= entry.coalescingBytes
        }
        invariant(byteCount >= 0 && (count == 0) == (byteCount == 0), "E1: what is held is the sum of its entries")
        if count == 0 { becomeEmpty() }
    }

    /// Gives up unused places when few are used, so that memory is freed while some entries stay.
    private mutating func releaseMemory() {
        guard nodes.count > Self.keptPlaces, count < nodes.count / 8 else { return }
        meter.count(nodes.count / 8 + 2 * count)
        var moved = [Int32](repeating: none, count: nodes.count)
        var rest: [Node] = []
        rest.reserveCapacity(count)
        var place = head
        while place != none {
            moved[Int(place)] = Int32(rest.count)
            rest.append(nodes[Int(place)])
            place = nodes[Int(place)].next
        }
        for place in rest.indices {
            rest[place].previous = Int32(place) - 1
            rest[place].next = place + 1 < rest.count ? Int32(place) + 1 : none
        }
        newest.updateValues { moved[Int($0)] }
        (nodes, firstFree, head, tail) = (rest, none, 0, Int32(rest.count) - 1)
    }

    private static let keptPlaces = 1024

    /// The number of places for which the queue has memory, for inspection.
    var places: Int { nodes.count }

    private mutating func forgetNewest(_ entry: Entry, at place: Int32) {
        let kind = entry.notification.kind
        if newest[kind] == place { newest[kind] = nil }
    }

    /// Keeps the memory for later entries, unless much was held.
    private mutating func becomeEmpty() {
        let isSmall = nodes.count <= Self.keptPlaces
        nodes.removeAll(keepingCapacity: isSmall)
        newest.removeAll(keepingCapacity: isSmall)
        (firstFree, head, tail) = (none, none, none)
    }

    // MARK: The linked list

    /// - Returns: the place of the entry, which is the newest now.
    private mutating func link(_ entry: Entry) -> Int32 {
        let node = Node(entry, previous: tail)
        let place = firstFree == none ? Int32(nodes.count) : firstFree
        if firstFree == none {
            nodes.append(node)
        } else {
            firstFree = nodes[Int(place)].next
            nodes[Int(place)] = node
        }
        if tail == none { head = place } else { nodes[Int(tail)].next = place }
        tail = place
        return place
    }

    private mutating func unlink(_ place: Int32) -> Entry {
        let node = nodes[Int(place)]
        if node.previous == none { head = node.next } else { nodes[Int(node.previous)].next = node.next }
        if node.next == none { tail = node.previous } else { nodes[Int(node.next)].previous = node.previous }
        nodes[Int(place)].free(before: firstFree)
        firstFree = place
        return node.entry!
    }

    func checkInvariants() throws(BrokenInvariant) {
        let entries = Array(all)
        let sum = entries.reduce((count: 0, byteCount: 0)) {
            ($0.count + 1, $0.byteCount + $1.dueBytes + (isReleased($1) ? 0 : $1.coalescingBytes))
        }
        try require(sum == (count, byteCount), "E1: what is held is the sum of its entries")
        try require(nodes.count(where: { $0.notification != nil }) == count, "S2: what is held is in the list")
        var (free, place) = (0, firstFree)
        while place != none, free < nodes.count { (free, place) = (free + 1, nodes[Int(place)].next) }
        try require(free == nodes.count - count, "E4: the memory of what has gone is used again")
        let due = entries.filter(isReleased)
        try require(
            due.count == released.count && due.reduce(0) { $0 + $1.dueBytes } == released.byteCount
                && entries.prefix(due.count).allSatisfy(isReleased), "S2: what was released is the oldest, and counted")
        for entry in entries {
            guard let coalescing = entry.coalescing else { continue }
            try require(
                entry.observers == coalescing || Set(entry.observers.ids).isSuperset(of: coalescing.ids),
                "S1: what coalesces is for observers of the entry")
            guard !isReleased(entry) else { continue }
            try require(
                newest[entry.notification.kind].flatMap { self.entry(at: $0) }?.notification.serial
                    == entry.notification.serial, "S1: \(entry.notification.serial) is the newest of its kind")
        }
        try require(
            newest.entries.allSatisfy { kind, place in
                entry(at: place).map { $0.notification.kind == kind && $0.coalescing != nil } ?? false
            }, "S1: the newest of a kind is held")
    }
}

/// No place: the end of the list.
private let none: Int32 = -1
