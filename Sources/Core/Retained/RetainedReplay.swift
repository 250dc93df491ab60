// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The values that an observer has yet to get because it asked for them (R2): those that were there when it registered,
/// and still are when it is sent them. What took a value's place since, it gets as every observer does.
public struct RetainedReplay: Equatable, Sendable {
    public let observer: ObserverID
    /// It got those up to this serial, or they are gone.
    public var after: UInt64
    /// The last serial that was given when it registered.
    public let through: UInt64
    /// Whether that waits until its client is resumed.
    public var isHeld: Bool

    public init(observer: ObserverID, after: UInt64, through: UInt64, isHeld: Bool) {
        self.observer = observer
        self.after = after
        self.through = through
        self.isHeld = isHeld
    }
}

/// All that the observers of a client are owed, in the order in which they asked, and what of it waits until the client is
/// resumed. Each change is O(1), however many observers ask, but for ``release()``, which moves them together.
struct RetainedReplays {
    private struct Entry {
        var owed: RetainedReplay
        /// The period in which it is held: until the next ``release()``. Nil for one that is not.
        var period: UInt64?
    }

    private var entries: [ObserverID: Entry] = [:]
    /// Those that may go, and those that are held; also some that are gone since.
    private var ready = Deque<ObserverID>()
    private var held = Deque<ObserverID>()
    private var heldCount = 0
    private var period: UInt64 = 0

    /// Gives up what is kept of those that are gone (E8).
    mutating func releaseRoom() { entries.releaseRoom() }

    var count: Int { entries.count }
    var isEmpty: Bool { entries.isEmpty }
    var hasReady: Bool { entries.count > heldCount }
    var hasHeld: Bool { heldCount > 0 }

    /// In the order in which they may go.
    var all: [RetainedReplay] {
        var seen: Set<ObserverID> = []
        let placed =
            ready.filter { id in entries[id].map { !isHeld($0) } ?? false }
            + held.filter { id in entries[id].map(isHeld) ?? false }
        return placed.filter { seen.insert($0).inserted }.map { export(entries[$0]!) }
    }

    private func export(_ entry: Entry) -> RetainedReplay {
        var owed = entry.owed
        owed.isHeld = isHeld(entry)
        return owed
    }

    private func isHeld(_ entry: Entry) -> Bool { entry.period == period }

    /// The first that may go.
    var first: RetainedReplay? {
        mutating get {
            while let id = ready.first {
                if let entry = entries[id], !isHeld(entry) { return export(entry) }
                _ = ready.popFirst()
            }
            return nil
        }
    }

    /// Notes what an observer is owed, and forgets it when that is nothing. One that is known keeps its place.
    mutating func set(_ owed: RetainedReplay) {
        guard owed.after < owed.through else { return remove(owed.observer) }
        let before = entries.removeValue(forKey: owed.observer)
        if let before, isHeld(before) { heldCount -= 1 }
        entries[owed.observer] = Entry(owed: owed, period: owed.isHeld ? period : nil)
        if owed.isHeld { heldCount += 1 }
        guard before.map(isHeld) != owed.isHeld else { return }
        if owed.isHeld { held.append(owed.observer) } else { ready.append(owed.observer) }
        dropStale()
    }

    mutating func remove(_ observer: ObserverID) {
        if let entry = entries.removeValue(forKey: observer), isHeld(entry) { heldCount -= 1 }
    }

    /// All that is held may go.
    mutating func release() {
        if ready.isEmpty { swap(&ready, &held) } else { for id in held { ready.append(id) } }
        held = Deque()
        (heldCount, period) = (0, period + 1)
    }

    /// Observers that come and go leave no more places than there are observers.
    private mutating func dropStale() {
        guard ready.count + held.count > 2 * entries.count + 64 else { return }
        ready = Deque(ready.filter { id in entries[id].map { !isHeld($0) } ?? false })
        held = Deque(held.filter { id in entries[id].map(isHeld) ?? false })
    }

    func checkInvariants() throws(BrokenInvariant) {
        try require(
            entries.values.count(where: isHeld) == heldCount, "R2: what is held of what is owed is counted")
        let (ready, held) = (Set(ready), Set(held))
        for (id, entry) in entries {
            try require(id == entry.owed.observer && entry.owed.after < entry.owed.through, "R2: something is owed")
            try require(isHeld(entry) ? held.contains(id) : ready.contains(id), "R2: what is owed has its place")
        }
    }
}
