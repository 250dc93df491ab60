// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The sequence numbers of received messages, for each topic. They distinguish new messages from duplicates, and reveal
/// losses. ``InwardGate`` uses it; it does no input and output.
///
/// A bridge numbers its messages on each topic: 1, 2, 3 and so on. The numbers belong to a *run*: a bridge process that
/// does not know the earlier numbers begins a new run with 1. A *hole* is a range of missing numbers. A broker keeps
/// the order on one topic, except for messages that it sends again after an interruption. A message may therefore fill
/// a hole within a time limit. A hole that is still open after the limit counts as a loss.
struct SequenceTracker: Equatable {
    /// The result of the check of a message.
    enum Verdict: Equatable {
        /// The message is new. It may fill a hole, or have no number.
        case new
        /// The message is new here, and its content may be old: it is the first known message on its topic, or a value
        /// whose successor was no value.
        case first
        /// The message is a duplicate, or a later value has superseded it.
        case repeated
    }

    /// A number of messages that never arrived.
    struct Loss: Equatable {
        let origin: Origin
        let name: String
        let count: UInt64
    }

    /// The maximum number of remembered topics. Beyond it, at least half of the topics are forgotten: those without
    /// recent messages.
    static let maxTopics = 65_536
    /// The maximum length of all remembered topics, in bytes.
    static let maxBytes = 32 << 20
    /// The maximum number of open holes of one topic; beyond it, the oldest hole is a loss at once.
    static let maxHoles = 16
    /// The time for which a hole may stay open.
    static let patience = Duration.seconds(5)
    /// The time for which a hole may stay open that was found by a message of a query. Such a message overtakes
    /// messages that wait for the in-flight window of the broker.
    static let patienceWithOvertaken = Duration.seconds(300)

    /// A range of missing numbers.
    private struct Hole: Equatable {
        var numbers: ClosedRange<UInt64>
        /// The time from which the hole stays open for ``patience``; in the future for a longer limit.
        let since: SuspendingClock.Instant
    }

    /// The state of a topic.
    private struct State: Equatable {
        /// The host that publishes on the topic.
        let origin: Origin
        let name: String
        /// The run of the last message.
        var run: String
        /// The highest number of the run.
        var highest: UInt64
        var holes: [Hole] = []
        /// The position of its last message among all messages, to find topics without recent messages.
        var age: UInt64
        /// Whether the state is of an earlier bridge process, and its name has not been wanted since.
        var isRestored = false
        /// The number of the last message that set or removed a value; 0 for none.
        var value: UInt64
        /// Whether the session lacks that value, although no message has removed it. The same message is then accepted
        /// again.
        var isGone = false
    }

    /// The state of each topic.
    private var states: [ExactText: State] = [:]
    /// The length of all topics, in bytes.
    private var byteCount = 0
    /// The topics with holes. Topics whose holes were filled stay until the next ``losses(at:)``.
    private var open: Set<ExactText> = []
    /// The number of checked messages.
    private var age: UInt64 = 0
    /// The losses that are not reported yet, of holes that were given up.
    private var lost: [Loss] = []

    /// The number of remembered topics.
    var count: Int { states.count }

    /// Checks a message and notes its number. The cases:
    /// - It is the first message on the topic: the number is noted, and lower numbers are no holes.
    /// - The run is new: the numbers begin again, and open holes are losses.
    /// - The number is above the highest one: numbers in between become a hole.
    /// - The number is lower: the message fills a hole, or is a duplicate. A value is accepted only if it is newer than
    ///   the last value of the topic, or is that value and the session lacks it.
    ///
    /// - Parameters:
    ///   - sequenceNumber: the run and the number of the message; nil if it has none.
    ///   - isValue: whether it is retained, and so sets or removes a value: a later message supersedes an earlier one.
    ///   - mayOvertake: whether it is of a query, and may have overtaken messages that still arrive.
    mutating func check(
        topic: String, origin: Origin, name: String, sequenceNumber: MessageProperties.SequenceNumber?,
        isValue: Bool = false,
        mayOvertake: Bool = false, now: SuspendingClock.Instant
    ) -> Verdict {
        let topic = ExactText(topic)
        guard let sequenceNumber else { return states[topic] == nil ? .first : .new }
        age += 1
        guard var state = states[topic] else {
            let size = topic.text.utf8.count
            if states.count >= Self.maxTopics || byteCount + size > Self.maxBytes { forgetOlder() }
            byteCount += size
            states[topic] = State(
                origin: origin, name: name, run: sequenceNumber.run, highest: sequenceNumber.count, age: age,
                value: isValue ? sequenceNumber.count : 0)
            return .first
        }
        defer { states[topic] = state }
        state.age = age
        if state.run != sequenceNumber.run {
            // Open holes of the earlier run count as lost. The new run began with 1, so lower numbers may be missing.
            give(up: state.holes, of: state)
            state.run = sequenceNumber.run
            state.holes = []
            (state.highest, state.value, state.isGone) = (0, 0, false)
        }
        if sequenceNumber.count > state.highest {
            if sequenceNumber.count > state.highest + 1 {
                // With a beginning in the future the hole stays open for the longer time limit.
                let since = mayOvertake ? now + Self.patienceWithOvertaken - Self.patience : now
                state.holes.append(Hole(numbers: state.highest + 1...sequenceNumber.count - 1, since: since))
                if state.holes.count > Self.maxHoles { give(up: [state.holes.removeFirst()], of: state) }
                open.insert(topic)
            }
            state.highest = sequenceNumber.count
            if isValue { (state.value, state.isGone) = (sequenceNumber.count, false) }
            return .new
        }
        let isMissing = Self.fill(sequenceNumber.count, &state.holes)
        guard isValue else { return isMissing ? .new : .repeated }
        // A later message that is not retained does not supersede a value.
        guard sequenceNumber.count > state.value || state.isGone && sequenceNumber.count == state.value else {
            return .repeated
        }
        (state.value, state.isGone) = (sequenceNumber.count, false)
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

    /// Restarts the time limit of all holes, because no message could arrive meanwhile.
    mutating func extendHoles(now: SuspendingClock.Instant) {
        for topic in open {
            guard let holes = states[topic]?.holes else { continue }
            for index in holes.indices {
                states[topic]!.holes[index] = Hole(numbers: holes[index].numbers, since: max(holes[index].since, now))
            }
        }
    }

    /// Notes that the session lacks the last value on a topic, although no message has removed it. If the broker shows
    /// that value again, it is accepted.
    mutating func valueIsGone(on topic: String) { states[ExactText(topic)]?.isGone = true }

    /// Gives up the holes whose time limit has passed, and returns all losses since the last call. The holes of a topic
    /// are given up in the order of their numbers.
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

    /// Whether there are holes, not counting holes that were found by messages of queries (`since` in the future).
    func isMissingSome(at now: SuspendingClock.Instant) -> Bool {
        open.contains { topic in states[topic]?.holes.contains { $0.since <= now } ?? false }
    }

    /// Whether ``losses(at:)`` has to be called again.
    var isWaiting: Bool { !open.isEmpty || !lost.isEmpty }

    /// Forgets the topics of unwanted names. Their open holes count as lost; later messages do not.
    ///
    /// The topics of an earlier process stay until their name has been wanted once, because at the start no name is
    /// wanted.
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

    /// The state of a topic, as the next process restores it. The messages of a topic share one sequence of numbers,
    /// and only some of them set or remove a value. Therefore the number of the last value is saved beside the last
    /// number.
    struct Saved: Equatable {
        let topic: String
        let origin: Origin
        let name: String
        /// The run, and the highest number (`count`) of any message of that run.
        let sequenceNumber: MessageProperties.SequenceNumber
        /// The numbers that are still missing.
        var holes: [ClosedRange<UInt64>] = []
        /// The number of the last message that set or removed a value; 0 for none, and nil if an earlier version has
        /// not saved it.
        var value: UInt64?
        /// Whether the session lacks that value, although no message has removed it.
        var isGone = false
    }

    /// The state of all topics, in the order of their last messages.
    var saved: [Saved] {
        states.sorted { $0.value.age < $1.value.age }.map { topic, state in
            Saved(
                topic: topic.text, origin: state.origin, name: state.name,
                sequenceNumber: .init(run: state.run, count: state.highest), holes: state.holes.map(\.numbers),
                value: state.value, isGone: state.isGone)
        }
    }

    /// Restores a topic. Call it in the order of ``saved``. The time limit of holes restarts.
    mutating func restore(_ saved: Saved, now: SuspendingClock.Instant) {
        guard states.count < Self.maxTopics, byteCount + saved.topic.utf8.count <= Self.maxBytes else { return }
        age += 1
        byteCount += saved.topic.utf8.count
        let topic = ExactText(saved.topic)
        states[topic] = State(
            origin: saved.origin, name: saved.name, run: saved.sequenceNumber.run, highest: saved.sequenceNumber.count,
            holes: saved.holes.map { Hole(numbers: $0, since: now) }, age: age, isRestored: true,
            value: saved.value ?? saved.sequenceNumber.count, isGone: saved.isGone)
        if !saved.holes.isEmpty { open.insert(topic) }
    }

    /// Counts holes as lost.
    private mutating func give(up holes: some Collection<Hole>, of state: State) {
        // The sender chooses the numbers, so the sum may overflow.
        let count = holes.reduce(UInt64(0)) {
            $0.addingLosses(($1.numbers.upperBound - $1.numbers.lowerBound).addingLosses(1))
        }
        if count > 0 { lost.append(Loss(origin: state.origin, name: state.name, count: count)) }
    }

    /// Forgets at least half of the topics. With fewer at a time, a sender with ever new topics would cause a sort of
    /// all topics for each message.
    private mutating func forgetOlder() {
        let limit = states.values.map(\.age).sorted()[states.count / 2]
        for state in states.values where state.age <= limit { give(up: state.holes, of: state) }
        states = states.filter { $0.value.age > limit }
        byteCount = states.keys.reduce(0) { $0 + $1.text.utf8.count }
    }
}
