// SPDX-License-Identifier: Apache-2.0
/// A double-ended queue, with insertion and removal at its ends in amortized O(1) and access by distance from the front
/// in O(1). The project uses it for FIFO queues.
///
/// The elements are in a ring of slots. The ring doubles when it is full. It is halved when it has more than
/// ``keptCapacity`` slots and at most a quarter of them is in use. The memory of a burst is thus released with the
/// burst, and a queue that alternates between empty and a few elements allocates nothing.
///
/// A value type; not thread-safe by itself. Inlinable, so that each module can specialize it for its own types.
public struct Deque<Element> {
    /// The number of slots up to which the ring is not halved.
    @inlinable public static var keptCapacity: Int { 64 }

    /// The slots; nil marks a free slot. Their number is a power of two, or 0.
    @usableFromInline var slots: ContiguousArray<Element?> = []
    /// The slot of the first element.
    @usableFromInline var head = 0
    /// The number of elements.
    @usableFromInline var used = 0

    @inlinable public init() {}

    @inlinable public init(_ elements: some Sequence<Element>) {
        for element in elements { append(element) }
    }

    /// The number of elements that fit without an allocation.
    @inlinable public var capacity: Int { slots.count }

    /// Inserts an element at the end.
    @inlinable public mutating func append(_ element: Element) {
        if used == slots.count { resize(to: Swift.max(8, used * 2)) }
        slots[slot(used)] = element
        used += 1
    }

    /// Inserts an element at the front.
    @inlinable public mutating func prepend(_ element: Element) {
        if used == slots.count { resize(to: Swift.max(8, used * 2)) }
        head = (head - 1) & (slots.count - 1)
        slots[head] = element
        used += 1
    }

    /// Removes and returns the element at the front; nil if the queue is empty.
    @inlinable @discardableResult
    public mutating func popFirst() -> Element? {
        guard used > 0 else { return nil }
        let element = slots[head].take()
        head = slot(1)
        used -= 1
        if slots.count > Self.keptCapacity, used <= slots.count / 4 { resize(to: slots.count / 2) }
        return element
    }

    /// Removes all elements, and releases their memory.
    @inlinable public mutating func removeAll() {
        self = Deque()
    }

    /// Removes the elements that satisfy the condition, and keeps the order of the others. O(``count``).
    @inlinable public mutating func removeAll(where isRemoved: (Element) throws -> Bool) rethrows {
        var rest = Deque()
        for element in self where try !isRemoved(element) { rest.append(element) }
        self = rest
    }

    /// Returns the slot of the element at a distance from the front.
    @inlinable func slot(_ distance: Int) -> Int {
        (head + distance) & (slots.count - 1)
    }

    /// Moves the elements to a new ring.
    @inlinable mutating func resize(to capacity: Int) {
        var resized: ContiguousArray<Element?> = []
        resized.reserveCapacity(capacity)
        // Elements are moved, so no reference counts change.
        for distance in 0..<used { resized.append(slots[slot(distance)].take()) }
        resized.append(contentsOf: repeatElement(nil, count: capacity - used))
        slots = resized
        head = 0
    }
}

extension Deque: RandomAccessCollection {
    @inlinable public var startIndex: Int { 0 }
    @inlinable public var endIndex: Int { used }

    /// The element at a distance from the front.
    @inlinable public subscript(distance: Int) -> Element {
        _read {
            precondition(distance >= 0 && distance < used, "there is no element at \(distance)")
            yield slots[slot(distance)]!
        }
        _modify {
            precondition(distance >= 0 && distance < used, "there is no element at \(distance)")
            yield &slots[slot(distance)]!
        }
    }
}

extension Deque: Sendable where Element: Sendable {}
