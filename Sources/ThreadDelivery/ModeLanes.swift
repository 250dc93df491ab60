// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMainLoop

/// What waits in one order, each for modes of its own: the next is the first that its modes allow.
///
/// There is a lane for each set of modes in which something waits, so that finding the next costs what such sets there
/// are, and not what waits for another mode.
///
/// A value type; not thread-safe by itself. Inlinable, so that each module that uses it has it for its own types.
@usableFromInline package struct ModeLanes<Element> {
    /// The place in the order; rising, and never used again.
    @usableFromInline package typealias Number = UInt64

    @usableFromInline struct Lane {
        @usableFromInline let modes: ModeSet
        @usableFromInline var entries = Deque<Entry>()
        /// What the context answered, and when.
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
    /// The number of the next that comes.
    @usableFromInline package var nextNumber: Number = 1
    @usableFromInline package var count = 0

    @inlinable package init() {}

    @inlinable package var isEmpty: Bool { count == 0 }

    /// How many sets of modes cost anything: for tests.
    @inlinable package var laneCount: Int { lanes.count }

    /// Puts one at the end.
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

    /// Whether something for these modes is news to a loop that was woken for what waits: that is all for other modes, so
    /// the loop may have gone to sleep over it.
    @inlinable package func isUnannounced(_ modes: ModeSet) -> Bool {
        count > 0 && !lanes.contains { $0.modes === modes && !$0.entries.isEmpty }
    }

    /// Takes out the first that may be dispatched in the context's mode.
    ///
    /// - Parameter limit: only one whose number is smaller.
    @inlinable package mutating func popFirst(in modes: ContextModes, before limit: Number = .max) -> Element? {
        guard let lane = firstLane(before: limit, { $0.isAllowed(in: modes) }) else { return nil }
        return pop(lane)
    }

    /// Takes out the first of all, whatever the mode.
    @inlinable package mutating func popOldest() -> Element? {
        guard let lane = firstLane(before: .max, { _ in true }) else { return nil }
        return pop(lane)
    }

    /// Whether anything may be dispatched in the context's mode.
    ///
    /// - Parameter limit: only those whose number is smaller.
    @inlinable package mutating func hasAllowed(in modes: ContextModes, before limit: Number = .max) -> Bool {
        firstLane(before: limit) { $0.isAllowed(in: modes) } != nil
    }

    /// Takes out all, in no particular order.
    @inlinable package mutating func removeAll() -> [Element] {
        defer {
            lanes = []
            count = 0
        }
        return lanes.flatMap { $0.entries.map(\.element) }
    }

    /// Drops those that fulfil the condition. O(``count``).
    @inlinable package mutating func removeAll(where isRemoved: (Element) -> Bool) {
        for lane in lanes.indices { lanes[lane].entries.removeAll { isRemoved($0.element) } }
        lanes.removeAll { $0.entries.isEmpty }
        count = lanes.reduce(0) { $0 + $1.entries.count }
    }

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
        // One stays, so that a queue that swings between empty and a few asks for no memory.
        if lanes[lane].entries.isEmpty, lanes.count > 1 {
            lanes.swapAt(lane, lanes.count - 1)
            lanes.removeLast()
        }
        return entry.element
    }
}

extension ModeLanes.Lane {
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
