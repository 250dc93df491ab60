// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMainLoop

/// A FIFO queue whose elements each have a set of run-loop modes: the next element is the oldest element allowed in
/// the current mode. ``Backlog`` and the notification queues use it.
///
/// There is one lane, a FIFO queue of its own, for each set of modes with waiting elements. Numbers give the order
/// between lanes. The cost of finding the next element therefore grows with the number of lanes, and not with the
/// number of elements that may not run.
///
/// A value type; not thread-safe by itself. Inlinable, so that each module specializes it for its own types.
@usableFromInline package struct ModeLanes<Element> {
    /// The position of an element in the order of the whole queue; it rises and is never reused.
    @usableFromInline package typealias Number = UInt64

    @usableFromInline struct Lane {
        @usableFromInline let modes: ModeSet
        @usableFromInline var entries = Deque<Entry>()
        /// The cached result of ``isAllowed(in:)``, valid while the context's modes have this generation.
        @usableFromInline var answer = false
        @usableFromInline var generation = -1

        @inlinable init(_ modes: ModeSet) {
            self.modes = modes
        }
    }

    @usableFromInline struct Entry {
        @usableFromInline let number: Number
        @usableFromInline let element: Element

        @inlinable init(_ number: Number, _ element: Element) {
            self.number = number
            self.element = element
        }
    }

    @usableFromInline var lanes: [Lane] = []
    /// The number of the next element to be appended.
    @usableFromInline package var nextNumber: Number = 1
    @usableFromInline package var count = 0

    @inlinable package init() {}

    @inlinable package var isEmpty: Bool { count == 0 }

    /// The number of lanes; for tests.
    @inlinable package var laneCount: Int { lanes.count }

    /// Appends an element, to the lane of its modes. Equal sets of modes are one object (``ModeSet``), so `===`
    /// compares the sets.
    @inlinable package mutating func append(_ element: Element, in modes: ModeSet) {
        let lane =
            lanes.firstIndex { $0.modes === modes }
            ?? {
                lanes.append(Lane(modes))
                return lanes.count - 1
            }()
        lanes[lane].entries.append(Entry(nextNumber, element))
        nextNumber += 1
        count += 1
    }

    /// Whether the loop must be woken when an element for these modes is appended to a queue that is not empty. This is
    /// so if all waiting elements are for other sets of modes: then none of them may be allowed, and the loop may
    /// sleep. For an empty queue the caller always wakes the loop.
    @inlinable package func needsWakeUp(_ modes: ModeSet) -> Bool {
        count > 0 && !lanes.contains { $0.modes === modes && !$0.entries.isEmpty }
    }

    /// Removes the first element that may be dispatched in the context's mode.
    ///
    /// - Parameter limit: only elements with smaller numbers are considered.
    @inlinable package mutating func popFirst(in modes: ContextModes, before limit: Number = .max) -> Element? {
        guard let lane = firstLane(before: limit, { $0.isAllowed(in: modes) }) else { return nil }
        return pop(lane)
    }

    /// Removes the first element, regardless of its modes.
    @inlinable package mutating func popOldest() -> Element? {
        guard let lane = firstLane(before: .max, { _ in true }) else { return nil }
        return pop(lane)
    }

    /// Whether any element may be dispatched in the context's mode.
    ///
    /// - Parameter limit: only elements with smaller numbers are considered.
    @inlinable package mutating func hasAllowed(in modes: ContextModes, before limit: Number = .max) -> Bool {
        firstLane(before: limit) { $0.isAllowed(in: modes) } != nil
    }

    /// Removes all elements, in no particular order.
    @inlinable package mutating func removeAll() -> [Element] {
        defer {
            lanes = []
            count = 0
        }
        return lanes.flatMap { $0.entries.map(\.element) }
    }

    /// Removes the elements that fulfil the condition. O(``count``).
    @inlinable package mutating func removeAll(where isRemoved: (Element) -> Bool) {
        for lane in lanes.indices { lanes[lane].entries.removeAll { isRemoved($0.element) } }
        lanes.removeAll { $0.entries.isEmpty }
        count = lanes.reduce(0) { $0 + $1.entries.count }
    }

    /// Returns the index of the allowed lane with the oldest first element.
    @inlinable mutating func firstLane(before limit: Number, _ isAllowed: (inout Lane) -> Bool) -> Int? {
        var (first, lowest) = (-1, limit)
        for lane in lanes.indices {
            guard let number = lanes[lane].entries.first?.number, number < lowest else { continue }
            if isAllowed(&lanes[lane]) { (first, lowest) = (lane, number) }
        }
        return first < 0 ? nil : first
    }

    @inlinable mutating func pop(_ lane: Int) -> Element {
        let entry = lanes[lane].entries.popFirst()!
        count -= 1
        // The last lane stays even if it is empty. A queue that is often empty then allocates no memory each time.
        if lanes[lane].entries.isEmpty, lanes.count > 1 {
            lanes.swapAt(lane, lanes.count - 1)
            lanes.removeLast()
        }
        return entry.element
    }
}

extension ModeLanes.Lane {
    /// Whether the elements of this lane may run in the context's current mode.
    @inlinable mutating func isAllowed(in context: ContextModes) -> Bool {
        let now = context.generation
        if generation != now {
            answer = context.allow(modes)
            generation = now
        }
        return answer
    }
}

extension ModeLanes.Entry: Sendable where Element: Sendable {}

extension ModeLanes.Lane: Sendable where Element: Sendable {}

extension ModeLanes: Sendable where Element: Sendable {}
