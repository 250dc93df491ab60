// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The tracker of the sequence numbers of each topic, which recognizes new, repeated and missing messages.
///
/// A broker keeps the order on one topic, except for messages that it sends again after an interruption. A hole, a
/// range of missing numbers, therefore has some time to be filled before it counts as a loss.
struct SequenceTracker: Equatable {
    enum Verdict: Equatable {
        /// The message is new. It may fill a hole, or have no number.
        case new
        /// It is the first known message on a topic, and it is unknown whether others came before it.
        case first
        /// The message has arrived before, or, for a value, a later one has.
        case repeated
    }

    /// Messages that never arrived.
    struct Loss: Equatable {
        let origin: Origin
        let name: String
        let count: UInt64
    }

    /// The maximum number of remembered topics; beyond it, the topics without recent messages are forgotten.
    static let maxTopics = 65_536
    /// The maximum length of all remembered topics together, in bytes.
    static let maxBytes = 32 << 20
    /// The maximum number of open holes of one topic; beyond it, the oldest hole is a loss at once.
    static let maxHoles = 16
    /// The time for which a hole may stay open.
    static let patience = Duration.seconds(5)
    /// The time for which a hole may stay open if its messages may wait behind others.
    static let patienceWithOvertaken = Duration.seconds(300)

    private struct Hole: Equatable {
        var numbers: ClosedRange<UInt64>
        let since: SuspendingClock.Instant
    }

    private struct State: Equatable {
        let origin: Origin
        let name: String
        var run: String
        var highest: UInt64
        var holes: [Hole] = []
        /// The time of its last message, as a count of messages.
        var age: UInt64
        /// Whether the state is of an earlier bridge, and its name has not been wanted since.
        var isRestored = false
        /// The number of the last message that set or ended a value; 0 for none.
        var value: UInt64
        /// Whether that value is over because the broker did not show it.
        var isGone = false
    }

    private var states: [ExactText: State] = [:]
    private var byteCount = 0
    private var open: Set<ExactText> = []
    private var age: UInt64 = 0
    /// The losses of holes that were given up before their time.
    private var lost: [Loss] = []

    var count: Int { states.count }

    /// Checks a message.
    ///
    /// - Parameters:
    ///   - place: the place of the message; nil if it has none.
    ///   - isValue: whether it sets or ends a value: a later message supersedes an earlier one.
    ///   - mayOvertake: whether it may have overtaken others, which still arrive.
    mutating func check(
        topic: String, origin: Origin, name: String, place: MessageProperties.Place?, isValue: Bool = false,
        mayOvertake: Bool = false, now: SuspendingClock.Instant
    ) -> Verdict {
        let topic = ExactText(topic)
        guard let place else { return states[topic] == nil ? .first : .new }
        age += 1
        guard var state = states[topic] else {
            let size = topic.text.utf8.count
            if states.count >= Self.maxTopics || byteCount + size > Self.maxBytes { forgetOlder() }
            byteCount += size
            states[topic] = State(
                origin: origin, name: name, run: place.run, highest: place.count, age: age,
                value: isValue ? place.count : 0)
            return .first
        }
        defer { states[topic] = state }
        state.age = age
        if state.run != place.run {
            // Open holes of the earlier run can't be filled any more, and this run began with 1.
            give(up: state.holes, of: state)
            state.run = place.run
            state.holes = []
            (state.highest, state.value, state.isGone) = (0, 0, false)
        }
        if place.count > state.highest {
            if place.count > state.highest + 1 {
                let since = mayOvertake ? now + Self.patienceWithOvertaken - Self.patience : now
                state.holes.append(Hole(numbers: state.highest + 1...place.count - 1, since: since))
                if state.holes.count > Self.maxHoles { give(up: [state.holes.removeFirst()], of: state) }
                open.insert(topic)
            }
            state.highest = place.count
            if isValue { (state.value, state.isGone) = (place.count, false) }
            return .new
        }
        let isMissing = Self.fill(place.count, &state.holes)
        guard isValue else { return isMissing ? .new : .repeated }
        // A later message that is no value does not end the value.
        guard place.count > state.value || state.isGone && place.count == state.value else { return .repeated }
        (state.value, state.isGone) = (place.count, false)
        return .first
    }

    /// Removes a number from the holes.
    ///
    /// - Returns: whether the number was missing.
    private static func fill(_ number: UInt64, _ holes: inout [Hole]) -> Bool {
        guard let index = holes.firstIndex(where: { $0.numbers.contains(number) }) else { return false }
        let hole = holes.remove(at: index)
        if number < hole.numbers.upperBound {
            holes.insert(Hole(numbers: number + 1...hole.numbers.upperBound, since: hole.since), at: index)
        }
        if number > hole.numbers.lowerBound {
            holes.insert(Hole(numbers: hole.numbers.lowerBound...number - 1, since: hole.since), at: index)
        }
        return true
    }

    /// Restarts the time limit of all holes, because no message could arrive.
    mutating func extendHoles(now: SuspendingClock.Instant) {
        for topic in open {
            guard let holes = states[topic]?.holes else { continue }
            for index in holes.indices {
                states[topic]!.holes[index] = Hole(numbers: holes[index].numbers, since: max(holes[index].since, now))
            }
        }
    }

    /// Notes that the value on a topic is over, without a message. The last value is present again if the broker shows
    /// it after all.
    mutating func valueIsGone(on topic: String) { states[ExactText(topic)]?.isGone = true }

    /// Returns the losses that are certain by now.
    mutating func losses(at now: SuspendingClock.Instant) -> [Loss] {
        for topic in open {
            guard var state = states[topic] else {
                open.remove(topic)
                continue
            }
            let due = state.holes.prefix { $0.since + Self.patience <= now }
            give(up: due, of: state)
            state.holes.removeFirst(due.count)
            if state.holes.isEmpty { open.remove(topic) }
            states[topic] = state
        }
        defer { lost = [] }
        return lost
    }

    /// Whether there are holes, except those behind messages that may have overtaken others.
    func isMissingSome(at now: SuspendingClock.Instant) -> Bool {
        open.contains { topic in states[topic]?.holes.contains { $0.since <= now } ?? false }
    }

    /// Whether ``losses(at:)`` must be asked again.
    var isWaiting: Bool { !open.isEmpty || !lost.isEmpty }

    /// Forgets the topics of unwanted names. A message that is missing from then on is no loss, but a noticed hole is
    /// one.
    ///
    /// Topics of an earlier bridge stay until their name was wanted once: at a start no name is wanted at first.
    mutating func keep(where isWanted: (_ name: String) -> Bool) {
        for (topic, state) in states {
            if isWanted(state.name) {
                if state.isRestored { states[topic]!.isRestored = false }
            } else if !state.isRestored {
                give(up: state.holes, of: state)
                states[topic] = nil
                byteCount -= topic.text.utf8.count
            }
        }
    }

    /// The saved state of a topic, for another process.
    struct Saved: Equatable {
        let topic: String
        let origin: Origin
        let name: String
        let place: MessageProperties.Place
        /// The numbers that are still missing.
        var holes: [ClosedRange<UInt64>] = []
        /// The number of the last message that set or ended a value; 0 for none, and nil if an earlier version did not
        /// write it.
        var value: UInt64?
        /// Whether that value is over because the broker did not show it.
        var isGone = false
    }

    /// The state of all topics, in the order of their last messages.
    var saved: [Saved] {
        states.sorted { $0.value.age < $1.value.age }.map { topic, state in
            Saved(
                topic: topic.text, origin: state.origin, name: state.name,
                place: .init(run: state.run, count: state.highest), holes: state.holes.map(\.numbers),
                value: state.value, isGone: state.isGone)
        }
    }

    /// Restores a topic. Must be called in the order of ``saved``. The time limit of holes restarts.
    mutating func restore(_ saved: Saved, now: SuspendingClock.Instant) {
        guard states.count < Self.maxTopics, byteCount + saved.topic.utf8.count <= Self.maxBytes else { return }
        age += 1
        byteCount += saved.topic.utf8.count
        let topic = ExactText(saved.topic)
        states[topic] = State(
            origin: saved.origin, name: saved.name, run: saved.place.run, highest: saved.place.count,
            holes: saved.holes.map { Hole(numbers: $0, since: now) }, age: age, isRestored: true,
            value: saved.value ?? saved.place.count, isGone: saved.isGone)
        if !saved.holes.isEmpty { open.insert(topic) }
    }

    private mutating func give(up holes: some Collection<Hole>, of state: State) {
        // The count may be any number, because the sender chooses it.
        let count = holes.reduce(UInt64(0)) {
            $0.addingLosses(($1.numbers.upperBound - $1.numbers.lowerBound).addingLosses(1))
        }
        if count > 0 { lost.append(Loss(origin: state.origin, name: state.name, count: count)) }
    }

    /// Forgets at least half of the topics, so that a sender with ever new topics does not cause a scan of all each
    /// time.
    private mutating func forgetOlder() {
        let limit = states.values.map(\.age).sorted()[states.count / 2]
        for state in states.values where state.age <= limit { give(up: state.holes, of: state) }
        states = states.filter { $0.value.age > limit }
        byteCount = states.keys.reduce(0) { $0 + $1.text.utf8.count }
    }
}
