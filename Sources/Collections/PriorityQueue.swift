// SPDX-License-Identifier: Apache-2.0
/// A priority queue with the least element first, as a binary heap. Insertion and removal are O(log ``count``). The
/// center uses it for scheduled times.
///
/// A value type; not thread-safe by itself. Inlinable, so that each module can specialize it for its own types.
public struct PriorityQueue<Element: Comparable> {
    @usableFromInline var heap: [Element] = []

    @inlinable public init() {}

    @inlinable public var count: Int { heap.count }
    @inlinable public var isEmpty: Bool { heap.isEmpty }

    /// The least element; nil if the queue is empty.
    @inlinable public var first: Element? { heap.first }

    /// All elements, in no particular order.
    @inlinable public var unordered: some Sequence<Element> { heap }

    @inlinable public mutating func insert(_ element: Element) {
        heap.append(element)
        var place = heap.count - 1
        while place > 0, heap[place] < heap[(place - 1) / 2] {
            heap.swapAt(place, (place - 1) / 2)
            place = (place - 1) / 2
        }
    }

    /// Removes and returns the least element; nil if the queue is empty.
    @discardableResult
    @inlinable public mutating func popFirst() -> Element? {
        guard let last = heap.popLast() else { return nil }
        guard let first = heap.first else { return last }
        heap[0] = last
        sink(0)
        return first
    }

    /// Removes all elements that satisfy the condition. O(``count``).
    @inlinable public mutating func removeAll(where isDropped: (Element) -> Bool) {
        heap.removeAll(where: isDropped)
        if heap.count < heap.capacity / 8 { releaseMemory() }
        for place in stride(from: heap.count / 2 - 1, through: 0, by: -1) { sink(place) }
    }

    /// Moves an element down the heap until none of its children is less.
    @inlinable mutating func sink(_ start: Int) {
        var place = start
        while true {
            var least = place
            for child in [2 * place + 1, 2 * place + 2] where child < heap.count && heap[child] < heap[least] {
                least = child
            }
            guard least != place else { return }
            heap.swapAt(place, least)
            place = least
        }
    }
}
