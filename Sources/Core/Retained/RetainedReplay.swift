// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The cursor of an observer that asked for the retained values when it registered (R2).
///
/// The replay sends the values in the order of their serials: values that existed at the registration and still exist
/// when they are sent. If a newer post has replaced a value since, the observer gets that post like any notification.
public struct RetainedReplay: Equatable, Sendable {
    public let observer: ObserverID
    /// The position: the values up to this serial were sent to the observer, or no longer exist.
    public var after: UInt64
    /// The end: the last serial that the center had assigned when the observer registered.
    public let through: UInt64
    /// Whether the replay is held until its client is resumed.
    public var isHeld: Bool

    public init(observer: ObserverID, after: UInt64, through: UInt64, isHeld: Bool) {
        self.observer = observer
        self.after = after
        self.through = through
        self.isHeld = isHeld
    }
}

/// The unfinished replays of a client, at most one for each observer, in the order of the registrations. A ready replay
/// may be sent; a held one waits until the client is resumed.
///
/// Each change is O(1), except ``release()``, which may move all held replays to the other queue. The end of a replay
/// leaves the two queues as they are, so they may have obsolete entries, and an observer twice. Readers skip these, and
/// ``dropStale()`` bounds their number.
struct RetainedReplays {
    private struct Entry {
        var replay: RetainedReplay
        /// The value of ``RetainedReplays/period`` in which the replay was held. It is held while that is the present
        /// period; nil for a replay that was never held.
        var period: UInt64?
    }

    private var entries: [ObserverID: Entry] = [:]
    /// The observers with ready and with held replays, the oldest first; also obsolete entries.
    private var ready = Deque<ObserverID>()
    private var held = Deque<ObserverID>()
    /// The number of held replays.
    private var heldCount = 0
    /// The number of calls of ``release()``. Each call ends the state *held* of all entries, without a change of them.
    private var period: UInt64 = 0

    /// Releases memory that removed entries have left unused (E8).
    mutating func releaseMemory() { entries.releaseMemory() }

    var count: Int { entries.count }
    var isEmpty: Bool { entries.isEmpty }
    var hasReady: Bool { entries.count > heldCount }
    var hasHeld: Bool { heldCount > 0 }

    /// All replays, in the order in which they may be sent.
    var all: [RetainedReplay] {
        var seen: Set<ObserverID> = []
        let placed =
            ready.filter { id in entries[id].map { !isHeld($0) } ?? false }
            + held.filter { id in entries[id].map(isHeld) ?? false }
        return placed.filter { seen.insert($0).inserted }.map { export(entries[$0]!) }
    }

    /// The cursor of an entry, with ``RetainedReplay/isHeld`` set.
    private func export(_ entry: Entry) -> RetainedReplay {
        var replay = entry.replay
        replay.isHeld = isHeld(entry)
        return replay
    }

    private func isHeld(_ entry: Entry) -> Bool { entry.period == period }

    /// The first ready replay; nil for none. Obsolete entries before it are removed.
    var first: RetainedReplay? {
        mutating get {
            while let id = ready.first {
                if let entry = entries[id], !isHeld(entry) { return export(entry) }
                _ = ready.popFirst()
            }
            return nil
        }
    }

    /// Stores the cursor of an observer, and removes it when nothing is left to replay. The cursor of a known observer
    /// stays at its place in the order, unless it becomes held or ready.
    mutating func set(_ replay: RetainedReplay) {
        guard replay.after < replay.through else { return remove(replay.observer) }
        let before = entries.removeValue(forKey: replay.observer)
        if let before, isHeld(before) { heldCount -= 1 }
        entries[replay.observer] = Entry(replay: replay, period: replay.isHeld ? period : nil)
        if replay.isHeld { heldCount += 1 }
        guard before.map(isHeld) != replay.isHeld else { return }
        if replay.isHeld { held.append(replay.observer) } else { ready.append(replay.observer) }
        dropStale()
    }

    /// Removes the cursor of an observer, if it has one.
    mutating func remove(_ observer: ObserverID) {
        if let entry = entries.removeValue(forKey: observer), isHeld(entry) { heldCount -= 1 }
    }

    /// Makes all held replays ready, behind the ready ones, by a new period.
    mutating func release() {
        if ready.isEmpty { swap(&ready, &held) } else { for id in held { ready.append(id) } }
        held = Deque()
        (heldCount, period) = (0, period + 1)
    }

    /// Removes obsolete entries of the queues when they outnumber the replays.
    private mutating func dropStale() {
        guard ready.count + held.count > 2 * entries.count + 64 else { return }
        ready = Deque(ready.filter { id in entries[id].map { !isHeld($0) } ?? false })
        held = Deque(held.filter { id in entries[id].map(isHeld) ?? false })
    }

    func checkInvariants() throws(BrokenInvariant) {
        try require(
            entries.values.count(where: isHeld) == heldCount, "R2: the number of held replays is right")
        let (ready, held) = (Set(ready), Set(held))
        for (id, entry) in entries {
            try require(
                id == entry.replay.observer && entry.replay.after < entry.replay.through,
                "R2: a replay has not reached its end")
            try require(
                isHeld(entry) ? held.contains(id) : ready.contains(id), "R2: each replay is in the queue of its state")
        }
    }
}
