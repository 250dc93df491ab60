// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("G2: losses and repetitions in remote streams", .limited)
struct SequenceTrackerTests {
    @Test("An older value is repeated after a newer one, and a hole found by a query remains open longer")
    func overtaken() {
        var places = SequenceTracker()
        let (start, origin) = (SuspendingClock.now, Origin(host: "lap", user: "u")!)
        func check(_ count: UInt64, isValue: Bool = true, mayOvertake: Bool = false) -> SequenceTracker.Verdict {
            places.check(
                topic: "t", origin: origin, name: "N", sequenceNumber: .init(run: "r", count: count), isValue: isValue,
                mayOvertake: mayOvertake, now: start)
        }
        #expect(check(1) == .first && check(5, mayOvertake: true) == .new)
        #expect(places.losses(at: start + .seconds(60)).isEmpty)
        #expect(check(2) == .repeated && check(3, isValue: false) == .new)
        #expect(places.losses(at: start + .seconds(301)).map(\.count) == [1])
        #expect(check(7) == .new)
        places.extendHoles(now: start + .seconds(4))
        #expect(places.losses(at: start + .seconds(8)).isEmpty)
        #expect(places.losses(at: start + .seconds(9)).map(\.count) == [1])
    }

    @Test("A later notification does not end a value that arrives late or is shown again")
    func valueBeforePlain() {
        var places = SequenceTracker()
        let (start, origin) = (SuspendingClock.now, Origin(host: "lap", user: "u")!)
        func check(_ count: UInt64, isValue: Bool) -> SequenceTracker.Verdict {
            places.check(
                topic: "t", origin: origin, name: "N", sequenceNumber: .init(run: "r", count: count), isValue: isValue,
                now: start)
        }
        #expect(check(6, isValue: false) == .first && check(5, isValue: true) == .first)
        #expect(check(5, isValue: true) == .repeated && check(4, isValue: true) == .repeated)
        #expect(check(8, isValue: false) == .new && check(7, isValue: true) == .first)
        #expect(places.losses(at: start + .seconds(60)).isEmpty, "it is not missing")
        places.valueIsGone(on: "t")
        #expect(check(9, isValue: false) == .new && check(7, isValue: true) == .first)
        #expect(check(7, isValue: true) == .repeated)
    }

    @Test("A value that is gone counts as new when the broker shows it again, also after a restart")
    func gone() throws {
        var places = SequenceTracker()
        let (start, origin) = (SuspendingClock.now, Origin(host: "lap", user: "u")!)
        func check(_ count: UInt64, isValue: Bool = true) -> SequenceTracker.Verdict {
            places.check(
                topic: "t", origin: origin, name: "N", sequenceNumber: .init(run: "r", count: count), isValue: isValue,
                now: start)
        }
        #expect(check(2) == .first && check(2) == .repeated)
        places.valueIsGone(on: "t")
        let saved = places.saved
        #expect(check(2, isValue: false) == .repeated)
        places = SequenceTracker()
        for sequenceNumber in saved { places.restore(sequenceNumber, now: start) }
        #expect(check(1) == .repeated)
        places.valueIsGone(on: "t")
        #expect(check(2) == .first && check(2) == .repeated)
    }

    private let origin = Origin(host: "lap", user: "ben")!
    private let start = SuspendingClock.now

    private func check(
        _ places: inout SequenceTracker, _ count: UInt64, run: String = "a", topic: String = "t", at seconds: Int = 0
    ) -> SequenceTracker.Verdict {
        places.check(
            topic: topic, origin: origin, name: "N", sequenceNumber: .init(run: run, count: count),
            now: start + .seconds(seconds))
    }

    private func losses(_ places: inout SequenceTracker, at seconds: Int) -> [UInt64] {
        places.losses(at: start + .seconds(seconds)).map(\.count)
    }

    @Test("Consecutive sequence numbers are new, and earlier numbers are repeated")
    func row() {
        var places = SequenceTracker()
        #expect(check(&places, 7) == .first)
        #expect(check(&places, 8) == .new && check(&places, 9) == .new)
        #expect(check(&places, 8) == .repeated && check(&places, 9) == .repeated && check(&places, 1) == .repeated)
        #expect(!places.isWaiting && losses(&places, at: 100).isEmpty)
    }

    @Test("A hole in the sequence numbers is a loss after five seconds, unless late messages fill it")
    func holes() {
        var places = SequenceTracker()
        _ = check(&places, 1)
        #expect(check(&places, 6) == .new)
        #expect(places.isWaiting && losses(&places, at: 4).isEmpty)
        #expect(check(&places, 4, at: 1) == .new, "it fills a part")
        #expect(check(&places, 4, at: 1) == .repeated)
        #expect(check(&places, 2, at: 1) == .new)
        #expect(losses(&places, at: 5) == [2], "3 and 5 never came")
        #expect(!places.isWaiting)
        #expect(check(&places, 3, at: 6) == .repeated, "it was told to be lost")
        #expect(check(&places, 7, at: 6) == .new)
    }

    @Test("A new run begins with number 1, and ends the holes of the previous run as losses")
    func runs() {
        var places = SequenceTracker()
        _ = check(&places, 5)
        _ = check(&places, 7)
        #expect(check(&places, 3, run: "b") == .new)
        #expect(losses(&places, at: 0) == [1], "of the earlier run nothing comes any more")
        #expect(losses(&places, at: 5) == [2])
    }

    @Test("A hostile sequence number causes neither a crash nor unbounded holes")
    func hostile() {
        var places = SequenceTracker()
        _ = check(&places, 1)
        #expect(check(&places, .max) == .new)
        #expect(check(&places, .max) == .repeated)
        #expect(losses(&places, at: 5) == [.max - 2])
        for count: UInt64 in stride(from: 2, to: 400, by: 2) { _ = check(&places, count, run: "b", at: 6) }
        #expect(places.isWaiting)
        #expect(losses(&places, at: 20).reduce(0, +) == 199)
    }

    @Test("The number of topics is limited, and topics of unwanted names are forgotten")
    func bounds() {
        var places = SequenceTracker()
        for number in 0...SequenceTracker.maxTopics { _ = check(&places, 1, topic: "t\(number)") }
        #expect(places.count <= SequenceTracker.maxTopics / 2 + 1)
        #expect(check(&places, 2, topic: "t\(SequenceTracker.maxTopics)") == .new, "the newest is known")
        places.keep { $0 != "N" }
        #expect(places.count == 0)
        #expect(check(&places, 9, topic: "t\(SequenceTracker.maxTopics)") == .first)
    }

    @Test("The total length of topics is limited")
    func boundedBytes() {
        var places = SequenceTracker()
        let long = String(repeating: "x", count: 60_000)
        for number in 0..<2 * SequenceTracker.maxBytes / 60_000 { _ = check(&places, 1, topic: "\(number)\(long)") }
        #expect(places.count * 60_000 <= SequenceTracker.maxBytes && places.count > 100)
    }

    @Test("An open hole becomes a loss when its name becomes unwanted")
    func holeOfUnwanted() {
        var places = SequenceTracker()
        for count: UInt64 in [1, 4] { _ = check(&places, count) }
        places.keep { _ in false }
        #expect(places.isWaiting && losses(&places, at: 0) == [2])
    }

    @Test("Restored topics remain until their name has been wanted once")
    func restored() {
        var before = SequenceTracker()
        for count: UInt64 in [1, 4] { _ = check(&before, count) }
        var places = SequenceTracker()
        for saved in before.saved { places.restore(saved, now: start) }
        places.keep { _ in false }
        #expect(places.count == 1)
        places.keep { _ in true }
        places.keep { _ in false }
        #expect(places.count == 0 && losses(&places, at: 0) == [2])
    }

    @Test("Restored topics are limited, and the least recently used ones are forgotten first")
    func boundsAfterRestart() {
        var before = SequenceTracker()
        for number in 0..<SequenceTracker.maxTopics { _ = check(&before, 1, topic: "t\(number)") }
        _ = check(&before, 2, topic: "t0")
        var places = SequenceTracker()
        for saved in before.saved { places.restore(saved, now: start) }
        #expect(places.count == SequenceTracker.maxTopics)
        for number in 0..<50 { _ = check(&places, 1, topic: "new\(number)") }
        #expect(places.count <= SequenceTracker.maxTopics)
        #expect(check(&places, 2, topic: "t0") == .repeated)
        #expect(check(&places, 2, topic: "t1") == .first)
    }

    @Test("A message without a number is the first of its topic, or new")
    func plain() {
        var places = SequenceTracker()
        #expect(places.check(topic: "t", origin: origin, name: "N", sequenceNumber: nil, now: start) == .first)
        _ = check(&places, 1)
        #expect(places.check(topic: "t", origin: origin, name: "N", sequenceNumber: nil, now: start) == .new)
    }
}
