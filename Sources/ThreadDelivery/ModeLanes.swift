import Collections
import MainLoop

/// What waits in one order, each for modes of its own: the next is the first that its modes allow.
///
/// There is a lane for each set of modes in which something waits, so that finding the next costs what such sets there
/// are, and not what waits for another mode.
///
/// A value type; not thread-safe by itself.
package struct ModeLanes<Element> {
    /// The place in the order; rising, and never used again.
    package typealias Number = UInt64

    fileprivate struct Lane {
        let modes: ModeSet
        var entries = Deque<(number: Number, element: Element)>()
        /// What the context answered, and when.
        var answer = false
        var generation = -1

        init(_ modes: ModeSet) {
            self.modes = modes
        }
    }

    private var lanes: [Lane] = []
    /// The number of the next that comes.
    package private(set) var nextNumber: Number = 1
    package private(set) var count = 0

    package init() {}

    package var isEmpty: Bool { count == 0 }

    /// How many sets of modes cost anything: for tests.
    package var laneCount: Int { lanes.count }

    /// Puts one at the end.
    package mutating func append(_ element: Element, in modes: ModeSet) {
        let lane =
            lanes.firstIndex { $0.modes === modes }
            ?? {
                lanes.append(Lane(modes))
                return lanes.count - 1
            }()
        lanes[lane].entries.append((nextNumber, element))
        nextNumber += 1
        count += 1
    }

    /// Takes out the first that may be dispatched in the context's mode.
    ///
    /// - Parameter limit: only one whose number is smaller.
    package mutating func popFirst(in modes: ContextModes, before limit: Number = .max) -> Element? {
        guard let lane = firstLane(before: limit, { $0.isAllowed(in: modes) }) else { return nil }
        return pop(lane)
    }

    /// Takes out the first of all, whatever the mode.
    package mutating func popOldest() -> Element? {
        guard let lane = firstLane(before: .max, { _ in true }) else { return nil }
        return pop(lane)
    }

    /// Whether anything may be dispatched in the context's mode.
    ///
    /// - Parameter limit: only those whose number is smaller.
    package mutating func hasAllowed(in modes: ContextModes, before limit: Number = .max) -> Bool {
        firstLane(before: limit) { $0.isAllowed(in: modes) } != nil
    }

    /// Takes out all, in no particular order.
    package mutating func removeAll() -> [Element] {
        defer {
            lanes = []
            count = 0
        }
        return lanes.flatMap { $0.entries.map(\.element) }
    }

    /// Drops those that fulfil the condition. O(``count``).
    package mutating func removeAll(where isRemoved: (Element) -> Bool) {
        for lane in lanes.indices { lanes[lane].entries.removeAll { isRemoved($0.element) } }
        lanes.removeAll { $0.entries.isEmpty }
        count = lanes.reduce(0) { $0 + $1.entries.count }
    }

    private mutating func firstLane(before limit: Number, _ isAllowed: (inout Lane) -> Bool) -> Int? {
        var (first, lowest) = (-1, limit)
        for lane in lanes.indices {
            guard let number = lanes[lane].entries.first?.number, number < lowest else { continue }
            if isAllowed(&lanes[lane]) { (first, lowest) = (lane, number) }
        }
        return first < 0 ? nil : first
    }

    private mutating func pop(_ lane: Int) -> Element {
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
    fileprivate mutating func isAllowed(in context: ContextModes) -> Bool {
        let now = context.generation
        if generation != now {
            answer = context.allow(modes)
            generation = now
        }
        return answer
    }
}

extension ModeLanes.Lane: Sendable where Element: Sendable {}

extension ModeLanes: Sendable where Element: Sendable {}
