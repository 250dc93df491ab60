// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonCollections
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Observation
import Testing

@testable import Carillon

@Suite("The values of a name as a collection (R1 to R3)", .limited)
struct DistributedValuesTests {
    private struct Lamp: Codable, Hashable {
        var level: Int
    }

    private let name = Notification.Name("com.example.Lamp")

    private func set(_ center: DistributedNotificationCenter, _ object: String, _ level: Int) async throws {
        try await center.postAndWait(
            named: name, object: object, userInfo: ["level": level], retention: .untilReplaced)
    }

    @Test("The collection contains the existing values by object and follows changes", arguments: BusKind.available)
    func follows(kind: BusKind) async throws {
        let desk = try Desk(kind)
        let poster = desk.center()
        try await set(poster, "hall", 1)
        try await set(poster, "", 2)
        let lamps = DistributedValues<Lamp>(named: name, center: desk.center())
        try await eventuallyInTask("what there was") { lamps.values == ["hall": Lamp(level: 1), "": Lamp(level: 2)] }
        try await set(poster, "hall", 3)
        try await set(poster, "attic", 4)
        try await eventuallyInTask("what came") { lamps["hall"]?.level == 3 && lamps["attic"]?.level == 4 }
        #expect(lamps["cellar"] == nil)
        try await poster.removeValues(named: name, object: "hall")
        let left = try await lamps.refresh()
        #expect(left == ["attic": Lamp(level: 4), "": Lamp(level: 2)])
        #expect(lamps.values == left)
    }

    @Test("Observation reports each change once, and no change for an equal value")
    func told() async throws {
        let desk = try Desk()
        let poster = desk.center()
        let lamps = DistributedValues<Lamp>(named: name, center: desk.center())
        let seen = Inbox<[String: Lamp]>()
        @Sendable func track() {
            withObservationTracking {
                _ = lamps.values
            } onChange: {
                seen.add(lamps.values)
                track()
            }
        }
        // With its answer the registration is there: what is set from here on arrives as it is set.
        #expect(try await lamps.refresh().isEmpty)
        track()
        try await set(poster, "hall", 1)
        try await set(poster, "hall", 1)
        try await set(poster, "attic", 2)
        try await set(poster, "hall", 3)
        try await eventuallyInTask("the last") { lamps["hall"]?.level == 3 }
        #expect(
            seen.all == [
                ["hall": Lamp(level: 1)], ["hall": Lamp(level: 1), "attic": Lamp(level: 2)],
                ["hall": Lamp(level: 3), "attic": Lamp(level: 2)],
            ])
    }

    @Test("A post that does not decode to the type leaves the value unchanged, and is counted and reported")
    func undecodable() async throws {
        let desk = try Desk()
        let poster = desk.center()
        let lamps = DistributedValues<Lamp>(named: name, center: desk.center())
        try await set(poster, "hall", 1)
        try await eventuallyInTask("the first") { lamps["hall"] != nil }
        try await poster.postAndWait(
            named: name, object: "hall", userInfo: ["level": "high"], retention: .untilReplaced)
        try await eventuallyInTask("the error") {
            lamps.error
                == .decodingFailed(type: "Lamp", reason: "level: there is a string instead of an integer")
        }
        #expect(lamps["hall"]?.level == 1 && lamps.center.statistics.undecodable == 1)
        try await set(poster, "hall", 2)
        try await eventuallyInTask("a proper one") { lamps["hall"]?.level == 2 && lamps.error == nil }
    }

    @Test("The collection reads its values again after a restart of the service", arguments: BusKind.available)
    func serviceEnds(kind: BusKind) async throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        func center() -> DistributedNotificationCenter {
            let center = DistributedNotificationCenter(busAddress: bus.address)
            center.defaultDelivery = .ownQueue
            return center
        }
        let poster = center()
        let lamps = DistributedValues<Lamp>(named: name, center: center())
        for number in 1...50 { try await set(poster, "\(number)", number) }
        try await eventuallyInTask("all") { lamps.values.count == 50 }
        try first.kill()
        let second = try ServiceProcess(on: bus)
        try await set(poster, "1", 100)
        try await eventuallyInTask("what came with the next") { lamps["1"]?.level == 100 }
        #expect(lamps.values.count == 50)
        withExtendedLifetime(second) {}
    }

    @Test("The example program shows the values that another process sets")
    func example() throws {
        let stage = try Stage(.before)
        let watcher = try stage.program("carillon-example-values", untilLine: "", registered: 1)
        for room in ["hall", "attic"] {
            let result = try stage.run("carillon-example-values", room, "7")
            #expect(result.exitCode == 0, "\(result)")
        }
        _ = try watcher.nextLine(within: .start) { $0 == "attic=7 hall=7" }
    }

    @Test("An empty name is refused")
    func refused() async throws {
        let desk = try Desk()
        let lamps = DistributedValues<Lamp>(named: .init(""), center: desk.center())
        await #expect(throws: DistributedNotificationError.invalidName("")) { try await lamps.refresh() }
        #expect(lamps.center.statistics.refusedObservers == 1)
    }

    // MARK: The known values

    @Test("Late answers and notifications neither replace newer values nor restore removed ones")
    func model() {
        // A service with values, whose notifications and answers come late, in their order.
        var generator = SplitMix.ofTest("DistributedValues")
        for _ in 0..<2_000 {
            var followed = FollowedValues<Int>()
            var kept: [ExactText: UInt64] = [:]
            var serial: UInt64 = 0
            var signals: [(ExactText, UInt64)] = []
            var untaken: [(ExactText, UInt64, Int)] = []
            for _ in 0..<Int.random(in: 1...12, using: &generator) {
                let object = ExactText("\(Int.random(in: 0..<3, using: &generator))")
                switch Int.random(in: 0..<5, using: &generator) {
                case 0, 1:
                    serial += 1
                    kept[object] = serial
                    signals.append((object, serial))
                case 2: kept[object] = nil
                case 3:
                    for (object, serial) in signals {
                        if let place = followed.arrived(object, serial: serial) {
                            untaken.append((object, place, Int(serial)))
                        }
                    }
                    signals = []
                default:
                    guard !untaken.isEmpty else { break }
                    let (object, place, content) = untaken.removeFirst()
                    _ = followed.take(content, of: object, at: place)
                }
            }
            // The signals were sent before the answer.
            let reading = followed.beginReading()
            for (object, serial) in signals {
                if let place = followed.arrived(object, serial: serial) { untaken.append((object, place, Int(serial))) }
            }
            guard let answered = followed.answered(reading, serials: kept, isLast: false) else { continue }
            let takesFirst = Bool.random(using: &generator)
            func takeRead() { _ = followed.take(kept.mapValues { Int($0) }, answered) }
            if takesFirst { takeRead() }
            for (object, place, content) in untaken { _ = followed.take(content, of: object, at: place) }
            if !takesFirst { takeRead() }
            let contents = Dictionary(followed.contents.map { ($0.object, UInt64($0.content)) }) { $1 }
            #expect(contents == kept)
        }
    }

    @Test("The older of two readings has no effect after the newer one")
    func overtaken() {
        var followed = FollowedValues<Int>()
        let object = ExactText("hall")
        let (one, two) = (followed.beginReading(), followed.beginReading())
        let older = followed.answered(one, serials: [object: 1], isLast: true)!
        let newer = followed.answered(two, serials: [:], isLast: true)!
        _ = followed.take([:], newer)
        _ = followed.take([object: 1], older)
        #expect(followed.contents.isEmpty)
    }

    @Test("Posts that are not retained occupy limited memory in the collection")
    func bound() {
        var followed = FollowedValues<Int>()
        var most = 0
        for number in 1...10_000 {
            let object = ExactText("\(number)")
            let place = followed.arrived(object, serial: UInt64(number))
            _ = followed.take(number, of: object, at: place!)
            if followed.isFull {
                let reading = followed.beginReading()
                let answered = followed.answered(reading, serials: [:], isLast: true)!
                _ = followed.take([:], answered)
            }
            most = max(most, followed.contents.count)
        }
        #expect(most <= 1_100)
    }
}
