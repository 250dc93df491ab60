/// Virtual time, and what is to happen in it, in the order of time and, at one moment, of having been asked for.
///
/// One thread; nothing here waits.
final class World {
    private struct Event {
        let time: Int64
        let order: UInt64
        let action: () -> Void

        func comes(before other: Event) -> Bool { (time, order) < (other.time, other.order) }
    }

    /// In microseconds since the simulation began.
    private(set) var now: Int64 = 0
    /// What broke a rule; the simulation ends with the first.
    private(set) var violation: Violation?
    /// Gets a line for each thing that happens, where somebody wants to read it.
    var trace: ((String) -> Void)?
    let seed: UInt64
    /// A heap: each before its two children.
    private var events: [Event] = []
    private var lastOrder: UInt64 = 0
    /// What happened, counted.
    private(set) var eventCount = 0

    init(seed: UInt64) {
        self.seed = seed
    }

    func at(_ time: Int64, _ action: @escaping () -> Void) {
        lastOrder += 1
        var index = events.count
        events.append(Event(time: max(time, now), order: lastOrder, action: action))
        while index > 0, events[index].comes(before: events[(index - 1) / 2]) {
            events.swapAt(index, (index - 1) / 2)
            index = (index - 1) / 2
        }
    }

    func after(_ microseconds: Int64, _ action: @escaping () -> Void) {
        at(now + microseconds, action)
    }

    /// Has everything happen up to a time, or to the first violation.
    ///
    /// - Parameter mostEvents: what goes on without end is a violation, too.
    func run(until end: Int64, mostEvents: Int = 20_000_000) {
        let limit = eventCount + mostEvents
        while violation == nil, let next = events.first, next.time <= end {
            removeFirst()
            now = next.time
            eventCount += 1
            next.action()
            if eventCount >= limit { violate("E4", "the simulation does not come to rest: \(mostEvents) events") }
        }
        now = max(now, end)
    }

    private func removeFirst() {
        let last = events.removeLast()
        guard !events.isEmpty else { return }
        events[0] = last
        var index = 0
        while true {
            var least = index
            for child in [2 * index + 1, 2 * index + 2]
            where child < events.count && events[child].comes(before: events[least]) { least = child }
            guard least != index else { return }
            events.swapAt(index, least)
            index = least
        }
    }

    /// A rule does not hold. Only the first is kept: what follows may come of it.
    func violate(_ rule: String, _ what: @autoclosure () -> String) {
        guard violation == nil else { return }
        let found = Violation(rule: rule, what: what(), time: now)
        violation = found
        note("VIOLATION \(found)")
    }

    func note(_ line: @autoclosure () -> String) {
        guard let trace else { return }
        let (seconds, rest) = now.quotientAndRemainder(dividingBy: 1_000_000)
        let digits = String(rest)
        trace("\(seconds).\(String(repeating: "0", count: 6 - digits.count))\(digits)  \(line())")
    }
}

/// A rule that does not hold, in a run that can be had again.
public struct Violation: Error, Equatable, CustomStringConvertible, Sendable {
    /// As in `docs/semantics.md`, or `fairness` or `convergence`.
    public let rule: String
    public let what: String
    /// In virtual microseconds.
    public let time: Int64

    public var description: String { "\(rule): \(what)" }
}
