// SPDX-License-Identifier: Apache-2.0
/// An object with a size that changes often, for ``LargestFirst``.
public protocol Sizable: AnyObject {
    var size: Int { get }
    /// Whether it comes before another one of the same size, so that the same changes give the same order everywhere.
    func precedes(_ other: Self) -> Bool
    /// For ``LargestFirst`` alone. An object is in one at a time.
    var place: LargestFirstPlace { get set }
}

/// Where an object stands in ``LargestFirst``.
public struct LargestFirstPlace {
    @usableFromInline var slot = -1
    @usableFromInline var hasChanged = false

    @inlinable public init() {}
}

/// Objects of which the largest is asked for now and then, while their sizes change all the time.
///
/// A change is only noted, in O(1). Asking costs O(log n) for each object that has changed since it was asked last, and
/// no walk over all. Objects of the size 0 are not kept.
///
/// A value type; not thread-safe by itself. Inlinable, so that each module that uses it has it for its own types.
public struct LargestFirst<Member: Sizable> {
    /// A binary heap; the sizes are those that were true when it was put in order.
    @usableFromInline var heap: [(size: Int, member: Member)] = []
    @usableFromInline var changed: [Member] = []

    @inlinable public init() {}

    /// To be called after each change of an object's size, also of one that was not there.
    @inlinable public mutating func noteChange(of member: Member) {
        guard !member.place.hasChanged else { return }
        member.place.hasChanged = true
        changed.append(member)
        // What is gone would be kept for as long as nobody asks.
        if changed.count > 64 + 2 * heap.count { putInOrder() }
    }

    /// Takes an object out, whatever its size.
    @inlinable public mutating func remove(_ member: Member) {
        putInOrder()
        if member.place.slot >= 0 { removeFromHeap(member) }
    }

    /// The largest; nil when all have the size 0.
    @inlinable public mutating func first() -> Member? {
        putInOrder()
        return heap.first?.member
    }

    /// Everything that is kept, in no particular order: for tests of what has to hold. Those that changed lately are
    /// among them, whatever their sizes, and may come twice.
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
