// SPDX-License-Identifier: Apache-2.0
/// A queue from which the least element comes first: a binary heap. Adding and taking are O(log ``count``).
public struct PriorityQueue<Element: Comparable> {
    private var heap: [Element] = []

    public init() {}

    public var count: Int { heap.count }
    public var isEmpty: Bool { heap.isEmpty }

    /// The least element.
    public var first: Element? { heap.first }

    /// All of them, in no particular order.
    public var unordered: some Sequence<Element> { heap }

    public mutating func insert(_ element: Element) {
        heap.append(element)
        var place = heap.count - 1
        while place > 0, heap[place] < heap[(place - 1) / 2] {
            heap.swapAt(place, (place - 1) / 2)
            place = (place - 1) / 2
        }
    }

    /// Takes the least element.
    @discardableResult
    public mutating func popFirst() -> Element? {
        guard let last = heap.popLast() else { return nil }
        guard let first = heap.first else { return last }
        heap[0] = last
        sink(0)
        return first
    }

    /// Drops all for which `isDropped` holds.
    public mutating func removeAll(where isDropped: (Element) -> Bool) {
        heap.removeAll(where: isDropped)
        for place in stride(from: heap.count / 2 - 1, through: 0, by: -1) { sink(place) }
    }

    private mutating func sink(_ start: Int) {
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
