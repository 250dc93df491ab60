// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The queue of notifications that are held for a suspended client. It has one order over all observers and suspension
/// behaviors of the client (S2). ``DeliveryQueue`` owns it.
///
/// A notification is held for its observers with the behavior `hold` or `coalesce`. For an observer that coalesces,
/// only the newest notification of each ``NotificationKey`` stays, at the tail (S1). All coalescing observers of a key
/// match each notification of that key, unless they were removed. Therefore the newest entry of a key has all of them,
/// and a new notification need look at this entry alone.
///
/// When the client is resumed, all held notifications are **released** at once: they are due from then on. They stay in
/// this queue in their order, before newer held ones, and no newer notification replaces them.
///
/// The entries are a linked list in one array, so that each can be removed in one step.
struct HeldQueue {
    /// A held or released notification.
    struct Entry {
        let notification: Notification
        /// All observers that are to get the notification.
        var observers: ObserverList
        /// The part of ``observers`` for which a newer notification of the key replaces this one; nil when there are
        /// none.
        var coalescing: ObserverList?
        /// The size that counts against the limits when the entry is due, in bytes. The list of observers counts in
        /// full, even if other entries share its memory.
        var dueBytes: Int { notification.byteCount + observers.byteCount }
        /// The additional size of an entry that is not due, in bytes: the list of coalescing observers, and its element
        /// in ``HeldQueue/newest``.
        var coalescingBytes: Int { Self.bytes(ofCoalescing: coalescing) }

        fileprivate static func bytes(ofCoalescing list: ObserverList?) -> Int {
            list.map { $0.byteCount + sizeInTable } ?? 0
        }

        /// The size of an element in ``HeldQueue/newest``, with the spare capacity of a hash table, in bytes.
        private static let sizeInTable = 72
    }

    /// An element of the array: an entry with its links, or a free place. An entry is stored as separate fields, so
    /// that a field can be read without a copy of the whole entry.
    fileprivate struct Node {
        /// Nil in a free place.
        var notification: Notification?
        var observers: ObserverList
        var coalescing: ObserverList?
        var previous: Int32
        /// The place of the next entry; in a free place, the next free place.
        var next: Int32

        init(_ entry: Entry, previous: Int32) {
            (notification, observers, coalescing) = (entry.notification, entry.observers, entry.coalescing)
            self.previous = previous
            next = none
        }

        var entry: Entry? {
            notification.map { Entry(notification: $0, observers: observers, coalescing: coalescing) }
        }

        /// Makes this a free place, before another one in the list of free places.
        mutating func free(before next: Int32) {
            (notification, observers, coalescing) = (nil, .many([]), nil)
            previous = none
            self.next = next
        }
    }

    /// Counts the elementary steps of each operation, in test builds.
    private let meter: StepMeter
    /// All entries and free places. A place is an index of this array.
    private var nodes: [Node] = []
    /// The first place in the list of free places.
    private var firstFree = none
    /// The places of the oldest and of the newest entry.
    private var head = none
    private var tail = none
    /// For each key with coalescing observers, the place of its newest entry. The next notification of the key replaces
    /// that entry for these observers.
    private var newest = SteadyDictionary<NotificationKey, Int32>()

    /// The number of entries, held and released, and their size that counts against the limits, in bytes.
    private(set) var count = 0
    private(set) var byteCount = 0
    /// The number of released entries, and their size in bytes.
    private(set) var released = (count: 0, byteCount: 0)
    /// The last serial in the queue at the last release. Entries up to it are released. A serial is the position of a
    /// notification among all posts.
    private(set) var releasedThrough: UInt64 = 0
    /// The sum of ``Entry/coalescingBytes`` over the entries that are not released. It is part of ``byteCount``.
    private var coalescingBytes = 0
    /// The greatest serial that was ever in the queue.
    private(set) var lastSerial: UInt64 = 0

    init(meter: StepMeter) {
        self.meter = meter
    }

    /// The content of the queue at one moment. It shares the memory of the queue until the queue changes.
    struct Snapshot {
        fileprivate let nodes: [Node]
        fileprivate let head: Int32
        let releasedCount: Int

        /// All entries, the oldest first.
        var all: some Sequence<Entry> {
            sequence(state: head) { [nodes] place -> Entry? in
                guard place != none else { return nil }
                defer { place = nodes[Int(place)].next }
                return nodes[Int(place)].entry
            }
        }
    }

    var snapshot: Snapshot { Snapshot(nodes: nodes, head: head, releasedCount: released.count) }

    /// All entries, the oldest first. Released entries come before the others.
    var all: some Sequence<Entry> { snapshot.all }

    private func entry(at place: Int32) -> Entry? { place == none ? nil : nodes[Int(place)].entry }

    /// The serial of the oldest entry.
    var firstSerial: UInt64? { entry(at: head)?.notification.serial }

    /// The oldest entry if it is released; otherwise nil.
    var firstReleased: Entry? { released.count > 0 ? entry(at: head) : nil }

    /// Whether the queue still has a released entry with this serial. O(``count``).
    func hasReleased(_ serial: UInt64) -> Bool {
        guard released.count > 0, serial <= releasedThrough else { return false }
        meter.count(count)
        return all.contains { $0.notification.serial == serial }
    }

    /// Counts the released (due) and the other (held) notifications that satisfy `isWanted`.
    func count(where isWanted: (Notification) -> Bool) -> (due: Int, held: Int) {
        meter.count(nodes.count)
        var found = (due: 0, held: 0)
        for place in nodes.indices {
            guard let notification = nodes[place].notification, isWanted(notification) else { continue }
            if notification.serial <= releasedThrough { found.due += 1 } else { found.held += 1 }
        }
        return found
    }

    /// Returns the `count` newest entries, the oldest of them first.
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

    /// Makes all present entries due. Their coalescing observers no longer matter, so ``coalescingBytes`` becomes 0.
    mutating func release() {
        byteCount -= coalescingBytes
        coalescingBytes = 0
        released = (count, byteCount)
        releasedThrough = lastSerial
    }

    /// Adds a notification at the tail. For the observers in `coalescing`, which are a part of `observers`, it replaces
    /// the newest entry of the same key.
    ///
    /// - Returns: the number of entries that were removed, because all of their observers get the new notification
    ///   instead.
    mutating func append(_ notification: Notification, observers: ObserverList, coalescing: ObserverList?) -> Int {
        invariant(notification.serial > lastSerial, "S2: held notifications are in global order")
        lastSerial = notification.serial
        let last = entry(at: tail)
        let observers = observers.shared(with: last?.observers)
        let coalescing = coalescing?.shared(with: observers).shared(with: last?.coalescing)
        let before = count
        if let coalescing, let place = newest[notification.key], !isReleased(place) { replace(coalescing, in: place) }
        let replaced = before - count
        let entry = Entry(notification: notification, observers: observers, coalescing: coalescing)
        let place = link(entry)
        if coalescing != nil { newest[notification.key] = place }
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

    /// Whether the entry at this place is released.
    private func isReleased(_ place: Int32) -> Bool { nodes[Int(place)].notification!.serial <= releasedThrough }

    private func isReleased(_ entry: Entry) -> Bool { entry.notification.serial <= releasedThrough }

    /// Removes observers from all entries. An entry without observers is removed, and not delivered (S1).
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
            // The coalescing observers are a part of the observers: they have not changed either.
            guard observers != nodes[Int(place)].observers else { continue }
            change(place, to: observers, nodes[Int(place)].coalescing.flatMap { takingCoalescing($0) })
        }
        releaseMemory()
    }

    /// Removes the coalescing observers from the entry that was the newest of the key. They get the new notification
    /// instead.
    private mutating func replace(_ coalescing: ObserverList, in place: Int32) {
        let entry = nodes[Int(place)].entry!
        meter.count(entry.observers.count)
        guard entry.observers != coalescing, let rest = entry.observers.removing(coalescing.ids).rest else {
            return clear(place)
        }
        // The other observers have the behavior `hold`, so the entry has no coalescing observers left.
        change(place, to: rest, nil)
    }

    /// Sets the observers of an entry, and updates the sizes.
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

    /// Removes the entry at this place, and updates the sizes.
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
        invariant(
            byteCount >= 0 && (count == 0) == (byteCount == 0),
            "E1: the totals of held notifications are the sums of the entries")
        if count == 0 { becomeEmpty() }
    }

    /// Moves the entries to a smaller array when less than an eighth of the places is used. Otherwise the memory of a
    /// burst would stay as long as one entry stays.
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

    /// The number of places whose memory is kept.
    private static let keptPlaces = 1024

    /// The number of places for which the queue has memory, for inspection.
    var places: Int { nodes.count }

    /// Notes that the entry at this place is no longer the newest of its key.
    private mutating func forgetNewest(_ entry: Entry, at place: Int32) {
        let key = entry.notification.key
        if newest[key] == place { newest[key] = nil }
    }

    /// Removes all places. The memory is kept for later entries, unless it is large.
    private mutating func becomeEmpty() {
        let isSmall = nodes.count <= Self.keptPlaces
        nodes.removeAll(keepingCapacity: isSmall)
        newest.removeAll(keepingCapacity: isSmall)
        (firstFree, head, tail) = (none, none, none)
    }

    // MARK: The linked list

    /// Puts an entry at the tail of the list.
    ///
    /// - Returns: its place.
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

    /// Takes the entry at this place out of the list, and makes the place free.
    private mutating func unlink(_ place: Int32) -> Entry {
        let node = nodes[Int(place)]
        if node.previous == none { head = node.next } else { nodes[Int(node.previous)].next = node.next }
        if node.next == none { tail = node.previous } else { nodes[Int(node.next)].previous = node.previous }
        nodes[Int(place)].free(before: firstFree)
        firstFree = place
        return node.entry!
    }

    /// Checks all conditions that hold between two events, in debug builds and the simulation.
    func checkInvariants() throws(BrokenInvariant) {
        let entries = Array(all)
        let sum = entries.reduce((count: 0, byteCount: 0)) {
            ($0.count + 1, $0.byteCount + $1.dueBytes + (isReleased($1) ? 0 : $1.coalescingBytes))
        }
        try require(sum == (count, byteCount), "E1: the totals of held notifications are the sums of the entries")
        try require(
            nodes.count(where: { $0.notification != nil }) == count, "S2: each held notification is in the list")
        var (free, place) = (0, firstFree)
        while place != none, free < nodes.count { (free, place) = (free + 1, nodes[Int(place)].next) }
        try require(free == nodes.count - count, "E4: each unused place is in the list of free places")
        let due = entries.filter(isReleased)
        try require(
            due.count == released.count && due.reduce(0) { $0 + $1.dueBytes } == released.byteCount
                && entries.prefix(due.count).allSatisfy(isReleased), "S2: released entries are the oldest, and counted")
        for entry in entries {
            guard let coalescing = entry.coalescing else { continue }
            try require(
                entry.observers == coalescing || Set(entry.observers.ids).isSuperset(of: coalescing.ids),
                "S1: coalescing observers are observers of the entry")
            guard !isReleased(entry) else { continue }
            try require(
                newest[entry.notification.key].flatMap { self.entry(at: $0) }?.notification.serial
                    == entry.notification.serial, "S1: \(entry.notification.serial) is the newest of its key")
        }
        try require(
            newest.entries.allSatisfy { key, place in
                entry(at: place).map { $0.notification.key == key && $0.coalescing != nil } ?? false
            }, "S1: the newest notification of a key is held")
    }
}

/// The absence of a place: the end of a list.
private let none: Int32 = -1
