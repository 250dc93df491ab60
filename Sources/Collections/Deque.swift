// SPDX-License-Identifier: Apache-2.0
/// A queue: elements go in at the end and come out at the front, each in O(1) amortised. Those that wait can be
/// read by their distance from the front.
///
/// The elements lie in a ring of slots. It doubles when it is full, and is halved when it has more than
/// ``keptCapacity`` slots and a quarter of them or less is in use. So the memory of a burst goes with the burst, and a
/// queue that swings between empty and a few asks for none.
///
/// A value type; not thread-safe by itself. Inlinable, so that each module that uses it has it for its own types.
public struct Deque<Element> {
    /// As many slots stay when the queue becomes empty.
    @inlinable public static var keptCapacity: Int { 64 }

    /// Nil where there is no element; the number of slots is a power of two, or 0.
    @usableFromInline var slots: ContiguousArray<Element?> = []
    @usableFromInline var head = 0
    @usableFromInline var used = 0

    @inlinable public init() {}

    @inlinable public init(_ elements: some Sequence<Element>) {
        for element in elements { append(element) }
    }

    /// How many elements there is room for without asking for memory.
    @inlinable public var capacity: Int { slots.count }

    @inlinable public mutating func append(_ element: Element) {
        if used == slots.count { resize(to: Swift.max(8, used * 2)) }
        slots[slot(used)] = element
        used += 1
    }

    /// Puts an element before all others.
    @inlinable public mutating func prepend(_ element: Element) {
        if used == slots.count { resize(to: Swift.max(8, used * 2)) }
        head = (head - 1) & (slots.count - 1)
        slots[head] = element
        used += 1
    }

    /// Takes the element at the front out; nil when there is none.
    @inlinable @discardableResult
    public mutating func popFirst() -> Element? {
        guard used > 0 else { return nil }
        let element = slots[head].take()
        head = slot(1)
        used -= 1
        if slots.count > Self.keptCapacity, used <= slots.count / 4 { resize(to: slots.count / 2) }
        return element
    }

    /// Drops all elements, and their memory.
    @inlinable public mutating func removeAll() {
        self = Deque()
    }

    /// Drops the elements that fulfil the condition; the rest stays in its order. O(``count``).
    @inlinable public mutating func removeAll(where isRemoved: (Element) throws -> Bool) rethrows {
        var rest = Deque()
        for element in self where try !isRemoved(element) { rest.append(element) }
        self = rest
    }

    /// The slot at a distance from the front.
    @inlinable func slot(_ distance: Int) -> Int {
        (head + distance) & (slots.count - 1)
    }

    @inlinable mutating func resize(to capacity: Int) {
        var resized: ContiguousArray<Element?> = []
        resized.reserveCapacity(capacity)
        // Moved, not copied: nothing is retained on the way.
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
