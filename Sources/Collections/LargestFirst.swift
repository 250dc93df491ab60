// SPDX-License-Identifier: Apache-2.0
/// An object with a frequently changing size, for ``LargestFirst``.
public protocol Sizable: AnyObject {
    var size: Int { get }
    /// Whether the object precedes another of the same size. It makes the order deterministic.
    func precedes(_ other: Self) -> Bool
    /// The place, for use by ``LargestFirst`` only. An object is in one collection at a time.
    var place: LargestFirstPlace { get set }
}

/// The position of an object in ``LargestFirst``.
public struct LargestFirstPlace {
    @usableFromInline var slot = -1
    @usableFromInline var hasChanged = false

    @inlinable public init() {}
}

/// A collection with occasional access to the largest object, for objects whose sizes change frequently.
///
/// A change is recorded in O(1). Access costs O(log n) for each object that has changed since the last access, without
/// a walk over all objects. Objects of size 0 are not kept.
///
/// A value type; not thread-safe by itself. Inlinable, so that each module can specialize it for its own types.
public struct LargestFirst<Member: Sizable> {
    /// A binary heap with the sizes at the time of the last ordering.
    @usableFromInline var heap: [(size: Int, member: Member)] = []
    @usableFromInline var changed: [Member] = []

    @inlinable public init() {}

    /// Records a change of an object's size, also of a new object. Call it after each change.
    @inlinable public mutating func noteChange(of member: Member) {
        guard !member.place.hasChanged else { return }
        member.place.hasChanged = true
        changed.append(member)
        // Without this limit, removed objects would be retained until the next access.
        if changed.count > 64 + 2 * heap.count { putInOrder() }
    }

    /// Removes an object of any size.
    @inlinable public mutating func remove(_ member: Member) {
        putInOrder()
        if member.place.slot >= 0 { removeFromHeap(member) }
    }

    /// Returns the largest object; nil if all have size 0.
    @inlinable public mutating func first() -> Member? {
        putInOrder()
        return heap.first?.member
    }

    /// All kept objects in no particular order, for tests of invariants. It includes recently changed objects of any
    /// size, possibly twice.
    @inlinable public var kept: [Member] { heap.map(\.member) + changed }

    @inlinable mutating func putInOrder() {
        for member in changed {
            member.place.hasChanged = false
            let size = member.size
            switch (member.place.slot >= 0, size > 0) {
            case (false, true):
                heap.append((size, member))
                member.place.slot = heap.count - 1
                moveUp(heap.count - 1)
            case (true, true):
                heap[member.place.slot].size = size
                moveUp(member.place.slot)
                moveDown(member.place.slot)
            case (true, false): removeFromHeap(member)
            case (false, false): break
            }
        }
        changed.removeAll(keepingCapacity: changed.count <= 256)
    }

    @inlinable mutating func removeFromHeap(_ member: Member) {
        let slot = member.place.slot
        let last = heap.count - 1
        swap(slot, last)
        heap.removeLast()
        member.place.slot = -1
        guard slot < last else { return }
        moveUp(slot)
        moveDown(slot)
    }

    @inlinable mutating func moveUp(_ slot: Int) {
        var slot = slot
        while slot > 0, isBefore(slot, (slot - 1) / 2) {
            swap(slot, (slot - 1) / 2)
            slot = (slot - 1) / 2
        }
    }

    @inlinable mutating func moveDown(_ slot: Int) {
        var slot = slot
        while true {
            var best = slot
            for child in [2 * slot + 1, 2 * slot + 2] where child < heap.count && isBefore(child, best) { best = child }
            guard best != slot else { return }
            swap(slot, best)
            slot = best
        }
    }

    @inlinable func isBefore(_ left: Int, _ right: Int) -> Bool {
        heap[left].size != heap[right].size
            ? heap[left].size > heap[right].size : heap[left].member.precedes(heap[right].member)
    }

    @inlinable mutating func swap(_ left: Int, _ right: Int) {
        heap.swapAt(left, right)
        heap[left].member.place.slot = left
        heap[right].member.place.slot = right
    }
}
