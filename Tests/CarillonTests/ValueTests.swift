// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// Values that stay (R1 to R3), as programs use them.
@Suite("R1 to R3: retained values, in the library", .limited)
struct ValueTests {
    private let name = Notification.Name("org.example.State")

    @Test("A retained post can later be read, observed and removed by another client", arguments: BusKind.available)
    func stays(kind: BusKind) async throws {
        let desk = try Desk(kind)
        let (poster, center) = (desk.center(), desk.center())
        for number in 1...3 {
            try await poster.postAndWait(
                named: name, object: "\(number % 2)", userInfo: ["number": number], retention: .untilReplaced)
        }
        try await poster.postAndWait(named: name, userInfo: ["number": 4], retention: .untilReplaced)
        poster.post("org.example.State", "0", number: 5)
        let values = try await center.values(named: name)
        #expect(values.map { $0.notification.userInfo?["number"] as? Int } == [2, 3, 4])
        #expect(values.map(\.serial) == [2, 3, 4] && values[0].poster.hasPrefix(":1."))
        #expect(abs(values[0].date.timeIntervalSinceNow) < 60)
        #expect(try await center.value(named: name)?.notification.object == nil)
        #expect(try await center.value(named: name)?.notification.userInfo?["number"] as? Int == 4)
        #expect(try await center.value(named: name, object: "1")?.notification.userInfo?["number"] as? Int == 3)
        #expect(try await center.value(named: name, object: "7") == nil)
        #expect(try await center.value(named: .init("org.example.Other")) == nil)

        center.details = [.retained, .kept, .expiry]
        let heard = Inbox<String>()
        let first = center.observe(name, retained: true) { note in
            heard.add("first \(note.userInfo?["number"] as? Int ?? 0) \(Origin.current?.isRetained == true)")
        }
        #expect(await center.flush())
        try eventually("the values: \(heard.all)") { heard.all.count == 3 }
        // One that comes later gets them, too, and the first does not get them again.
        let second = center.observe(name, retained: true) { note in
            heard.add("second \(note.userInfo?["number"] as? Int ?? 0) \(Origin.current?.isRetained == true)")
        }
        try await poster.postAndWait(named: name, object: "1", userInfo: ["number": 6])
        #expect(await center.flush())
        try await poster.postAndWait(named: name, object: "1", userInfo: ["number": 7])
        try eventually("what is new: \(heard.all)") { heard.all.filter { $0.contains(" 7 ") }.count == 2 }
        let retained = [2, 3, 4].map { "\($0) true" }
        #expect(heard.all.filter { $0.hasPrefix("first") }.prefix(3).elementsEqual(retained.map { "first \($0)" }))
        #expect(heard.all.filter { $0.hasPrefix("second") && $0.hasSuffix("true") } == retained.map { "second \($0)" })
        #expect(
            heard.all.filter { $0.hasPrefix("first") && $0.hasSuffix("false") } == ["first 6 false", "first 7 false"])

        // What the program is told besides, as it asked for it.
        let told = Inbox<String>()
        let third = center.observe(name, object: "told") { _ in
            let expiry = Origin.current?.expiry.map { $0.timeIntervalSinceNow > 1800 }
            told.add("\(Origin.current?.isKept == true) \(expiry.map(String.init) ?? "never")")
        }
        #expect(await center.flush())
        try await poster.postAndWait(
            named: name, object: "told", retention: .untilReplaced.expiring(after: .seconds(3600)))
        try await poster.postAndWait(named: name, object: "told", retention: .untilReplaced)
        try await poster.postAndWait(named: name, object: "told")
        try eventually("what is told: \(told.all)") { told.all.count == 3 }
        #expect(told.all == ["true true", "true never", "false never"])
        #expect(try await center.removeValues(named: name, object: "told") == 1)

        #expect(try await center.removeValues(named: name, object: "1") == 1)
        #expect(try await center.removeValues(named: name) == 2)
        #expect(try await center.values(named: nil).isEmpty)
        withExtendedLifetime((first, second, third)) {}
    }

    @Test(
        "R5: an observer with an interval gets few of a thousand posts, and the last; invalid intervals are refused",
        arguments: BusKind.available
    )
    func thinned(kind: BusKind) async throws {
        let desk = try Desk(kind)
        let (poster, center) = (desk.center(), desk.center())
        let heard = Inbox<Int>()
        let observation = center.observe(name, minimumInterval: .milliseconds(200)) { note in
            heard.add(note.userInfo?["number"] as? Int ?? 0)
        }
        #expect(await center.flush())
        let clock = ContinuousClock()
        let start = clock.now
        var last = 0
        // On a busy machine the first thousand may leave at once, and come as two.
        try await eventuallyInTask("three of them: \(heard.all)") {
            for _ in 0..<10 {
                last += 1
                poster.post("org.example.State", number: last)
            }
            return last >= 1000 && heard.all.count >= 3
        }
        #expect(await poster.flush())
        let most = 2 + Int((clock.now - start) / .milliseconds(200))
        try eventually("the last: \(heard.all)") { heard.all.last == last }
        #expect(heard.all.first == 1 && heard.all == heard.all.sorted())
        #expect(heard.all.count <= most, "\(heard.all)")
        for interval in [Duration.milliseconds(-1), .seconds(1 << 40)] {
            _ = center.observe(name, minimumInterval: interval) { _ in }
        }
        #expect(center.statistics.refusedObservers == 2)
        withExtendedLifetime(observation) {}
    }

    @Test("A while-connected value ends with its center, an expiring value at its time; invalid times are refused")
    func ends() async throws {
        let desk = try Desk()
        let center = desk.center()
        var present: DistributedNotificationCenter? = desk.center()
        try await present?.postAndWait(named: name, object: "here", retention: .whileConnected)
        // Its time may be over before it is looked at, where much else runs.
        try await eventuallyInTask("both are there") {
            try await center.postAndWait(
                named: name, object: "soon", retention: .untilReplaced.expiring(after: .milliseconds(500)))
            return try await center.values(named: name).count == 2
        }
        present = nil
        try await eventuallyInTask("they go") { try await center.values(named: name).isEmpty }
        for time in [Duration.zero, .seconds(-1), .seconds(1 << 40)] {
            await #expect(throws: DistributedNotificationError.self, "\(time)") {
                try await center.postAndWait(named: name, retention: .untilReplaced.expiring(after: time))
            }
        }
    }

    @Test("After a kill of the service an observer of values receives new values, and no earlier value twice")
    func again() async throws {
        let desk = try Desk()
        let (poster, center) = (desk.center(), desk.center())
        let heard = Inbox<Int>()
        let observation = center.observe(name, retained: true) { heard.add($0.userInfo?["number"] as? Int ?? 0) }
        #expect(await center.flush())
        try await poster.postAndWait(named: name, userInfo: ["number": 1], retention: .untilReplaced)
        desk.service.signal(SIGKILL)
        _ = try desk.service.waitForExit()
        let second = try ServiceProcess(on: desk.bus)
        // It may not have heard of it, and then fails at once.
        try await eventuallyInTask("the poster knows it: \(second.transcript)") { await poster.flush() }
        try await poster.postAndWait(named: name, object: "x", userInfo: ["number": 2], retention: .untilReplaced)
        try eventually("both: \(second.transcript)") { heard.all.contains(2) }
        #expect(heard.all == [1, 2], "what a service kept it does not give twice")
        withExtendedLifetime(observation) {}
    }
}
