// SPDX-License-Identifier: Apache-2.0
/// Virtual time, and what is to happen in it, in the order of time and, at one moment, of having been asked for.
///
/// One thread; nothing here waits.
final class World {
    /// When something happens, and where it stands in `actions`: what the heap moves about is no more than this.
    private struct Event {
        let time: Int64
        let order: UInt64
        let place: Int

        func comes(before other: Event) -> Bool { time < other.time || time == other.time && order < other.order }
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
    /// What happens, by the places of the events.
    private var actions: [(() -> Void)?] = []
    /// Those of them that are free.
    private var freePlaces: [Int] = []
    private var lastOrder: UInt64 = 0
    /// What happened, counted.
    private(set) var eventCount = 0

    init(seed: UInt64) {
        self.seed = seed
    }

    func at(_ time: Int64, _ action: @escaping () -> Void) {
        lastOrder += 1
        let place: Int
        if let free = freePlaces.popLast() {
            place = free
            actions[place] = action
        } else {
            place = actions.count
            actions.append(action)
        }
        let event = Event(time: max(time, now), order: lastOrder, place: place)
        var index = events.count
        events.append(event)
        while index > 0, event.comes(before: events[(index - 1) / 2]) {
            events[index] = events[(index - 1) / 2]
            index = (index - 1) / 2
        }
        events[index] = event
    }

    func after(_ microseconds: Int64, _ action: @escaping () -> Void) {
        at(now + microseconds, action)
    }

    /// Has everything happen up to a time, or to the first violation.
    ///
    /// - Parameter mostEvents: what goes on without end is a violation, too.
    func run(until end: Int64, maxEvents: Int = 20_000_000) {
        let limit = eventCount + maxEvents
        while violation == nil, let next = events.first, next.time <= end {
            removeFirst()
            now = next.time
            eventCount += 1
            takeAction(next.place)()
            if eventCount >= limit { violate("E4", "the simulation does not come to rest: \(maxEvents) events") }
        }
        now = max(now, end)
    }

    private func takeAction(_ place: Int) -> () -> Void {
        let action = actions[place].take()!
        freePlaces.append(place)
        return action
    }

    private func removeFirst() {
        let last = events.removeLast()
        guard !events.isEmpty else { return }
        var index = 0
        while true {
            var least = 2 * index + 1
            guard least < events.count else { break }
            if least + 1 < events.count, events[least + 1].comes(before: events[least]) { least += 1 }
            guard events[least].comes(before: last) else { break }
            events[index] = events[least]
            index = least
        }
        events[index] = last
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
