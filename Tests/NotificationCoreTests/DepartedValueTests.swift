// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// Values whose posters have left: they give way where there is no room.
@Suite("E4, R1: values of posters that have left", .limited)
struct DepartedValueTests {
    private func scenario(_ limits: [Limits.Key: UInt64] = [:]) -> Scenario {
        let center = Scenario(limits)
        center.center.remembersChanges = true
        return center
    }

    @Test("E4: values of departed posters are removed for new values, first those of the poster with the most")
    func departed() throws {
        let center = scenario([.retained: 100])
        func retain(_ name: String, from poster: ClientName) throws {
            try center.post(name, retention: Retention(), from: poster)
        }
        center.identify(":1.5", as: 5)
        try retain("Honest", from: ":1.5")
        center.disappear(":1.5")
        center.identify(":1.6", as: 6)
        for number in 1...10 { try retain("Living\(number)", from: ":1.6") }
        #expect(center.departuresWatched == [":1.5", ":1.6"], "each once")
        for process in 10..<60 as Range<UInt32> {
            let poster = ClientName(unchecked: ":2.\(process)")
            center.identify(poster, as: process)
            var count = 0
            while count < 200, (try? retain("Flood\(process)-\(count)", from: poster)) != nil { count += 1 }
            #expect(count > 60, "process \(process) finds \(count)")
            #expect(center.statistics.retained <= 100)
            try center.center.checkInvariants()
            center.disappear(poster)
        }
        #expect(center.values("Honest") == ["Honest"], "it left little behind")
        #expect((1...10).allSatisfy { center.values("Living\($0)").count == 1 }, "what is there gives nothing up")
        #expect(center.statistics.displaced > 1000)
        // The oldest of the last that left go first, and who is refused removes none.
        let before = center.statistics.retained
        center.center.limits[.retainedPerClient] = 10
        #expect(throws: CenterError.self) { try retain("Refused", from: ":1.6") }
        #expect(center.statistics.retained == before)
        center.center.limits[.retainedPerClient] = 100
        try retain("Last", from: ":1.6")
        #expect(center.values("Last") == ["Last"] && center.values("Flood59-0").isEmpty)
        // One value takes the place of its own without any other giving way.
        let displaced = center.statistics.displaced
        try retain("Last", from: ":1.6")
        #expect(center.statistics.displaced == displaced)
        try center.center.checkInvariants()
    }

    @Test("E4: values of departed posters are removed for the bytes of new values, also after a restart")
    func departedBytes() throws {
        let old = scenario([.retainedBytes: 100_000])
        for number in 1...8 {
            try old.post("A\(number)", bytes: 10_000, retention: Retention(), from: ":1.7")
        }
        let center = scenario([.retainedBytes: 100_000])
        for change in old.changes { _ = center.center.restore(change) }
        let last = old.center.lastNumbers
        center.center.restoreNumbers(lastSerial: last.serial, lastObserver: last.observer)
        center.finishRestoring()
        try center.center.checkInvariants()
        // It may be there still.
        #expect(center.departuresWatched == [":1.7"])
        #expect(throws: CenterError.self) {
            try center.post("B1", bytes: 20_000, retention: Retention(), from: ":1.8")
        }
        center.disappear(":1.7")
        for number in 1...3 { try center.post("B\(number)", bytes: 20_000, retention: Retention(), from: ":1.8") }
        #expect(center.values().map { $0.first! } == ["A", "A", "A", "B", "B", "B"])
        #expect(center.values().first == "A6")
        #expect(throws: CenterError.self) {
            try center.post("C", bytes: 99_000, retention: Retention(), from: ":1.8")
        }
        #expect(center.values().count == 6, "nothing goes for what is refused")
        try center.center.checkInvariants()
    }

    @Test("E4: a poster of values that was forgotten and posts again is treated like a new poster")
    func comesAgain() throws {
        let center = scenario()
        let one: ClientName = ":1.7"
        try center.post("A", retention: Retention(), from: one)
        center.stop(one)
        for _ in 0..<70 { _ = center.answer(to: one) }
        center.disappear(one)
        #expect(center.forgotten.last == one)
        try center.center.checkInvariants()
        // Its answer was on its way.
        center.answer(one)
        try center.post("B", retention: Retention(), from: one)
        #expect(center.departuresWatched == [one, one])
        center.answer(one)
        #expect(center.statistics.inFlightBytes == 0)
        try center.center.checkInvariants()
    }
}
