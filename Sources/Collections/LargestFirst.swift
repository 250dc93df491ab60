// SPDX-License-Identifier: Apache-2.0
/// A member of ``LargestFirst``: an object with a size that changes often.
public protocol Sizable: AnyObject {
    /// The size by which members are ordered.
    var size: Int { get }
    /// Whether this object comes first of two with the same size. It makes the order deterministic.
    func precedes(_ other: Self) -> Bool
    /// The position in the collection, for use by ``LargestFirst`` only. An object is in one collection at a time.
    var place: LargestFirstPlace { get set }
}

/// The position of an object in ``LargestFirst``.
public struct LargestFirstPlace {
    /// The index in the heap; -1 for an object that is not there.
    @usableFromInline var slot = -1
    /// Whether the object is in the list of changed objects.
    @usableFromInline var hasChanged = false

    @inlinable public init() {}
}

/// A priority queue of objects with changing sizes: it gives the largest object. The center finds in it the account or
/// client from which it takes memory back.
///
/// Sizes change at each event, and the largest object is needed seldom. Therefore a change is only recorded, in O(1).
/// An access to the largest object moves the objects that have changed since the last access, in O(log n) each. Objects
/// of size 0 are not kept.
///
/// A value type; not thread-safe by itself. Inlinable, so that each module can specialize it for its own types.
public struct LargestFirst<Member: Sizable> {
    /// A binary heap. Its sizes are those of the last ordering.
    @usableFromInline var heap: [(size: Int, member: Member)] = []
    /// The objects that have changed since the last ordering.
    @usableFromInline var changed: [Member] = []

    @inlinable public init() {}

    /// Records a change of an object's size. Call it for each new object, and after each change.
    @inlinable public mutating func noteChange(of member: Member) {
        guard !member.place.hasChanged else { return }
        member.place.hasChanged = true
        changed.append(member)
        // The list holds references. Without this limit, objects of size 0 would stay in memory until the next access.
        if changed.count > 64 + 2 * heap.count { putInOrder() }
    }

    /// Removes an object, regardless of its size.
    @inlinable public mutating func remove(_ member: Member) {
        putInOrder()
        if member.place.slot >= 0 { removeFromHeap(member) }
    }

    /// Returns the largest object; nil if all have size 0.
    @inlinable public mutating func first() -> Member? {
        putInOrder()
        return heap.first?.member
    }

    /// All objects that the collection refers to, in no particular order, for tests of invariants. An object may occur
    /// twice.
    @inlinable public var kept: [Member] { heap.map(\.member) + changed }

    /// Moves all changed objects to their positions in the heap.
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

    /// Removes an object from the heap: the last object takes its slot, and moves to its own position.
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

    /// Whether the object at one index is larger than that at the other, or precedes it.
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
