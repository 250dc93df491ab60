// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Observers with minimum intervals (R5), on real buses.
@Suite("R5: minimum intervals, on the bus", .serialized, .limited)
struct BusIntervalTests {
    private func observe(
        _ name: String, interval: UInt32, _ behavior: SuspensionBehavior = .coalesce, from client: Client
    ) throws -> ObserverID {
        try client.call(
            AddObserver(
                name: name, object: "",
                options: ObserverOptions(suspensionBehavior: behavior, minimumInterval: interval)))
    }

    private func post(_ name: String, _ object: String = "", n: Int64, from client: Client) throws {
        try client.call(try PostCall(name: name, object: object, userInfo: ["n": .int64(n)]))
    }

    @Test(
        "Of a thousand posts in two seconds, an observer gets at most five per second, and the last one",
        arguments: BusKind.available)
    func thousand(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (poster, observer, all) = (try Client(on: bus), try Client(on: bus), try Client(on: bus))
        let id = try observe("Progress", interval: 200, from: observer)
        _ = try observe("Progress", interval: 0, from: all)
        let clock = ContinuousClock()
        let start = clock.now
        for n in 1...1000 {
            try post("Progress", n: Int64(n), from: poster)
            if n % 50 == 0 { letPass(.milliseconds(100), because: "they come over two seconds") }
        }
        let seconds = (clock.now - start) / .seconds(1)
        try observer.run("the last: \(service.transcript)") { observer.signals.last?.number == 1000 }
        try all.run("all") { all.signals.count == 1000 }
        let count = observer.signals.count
        #expect(observer.signals.first?.number == 1 && observer.signals.allSatisfy { $0.observers == [id] })
        #expect(count >= 3 && count <= Int(5 * seconds) + 2, "\(count) in \(seconds) s")
        let numbers = observer.signals.map { $0.number }
        #expect(numbers == numbers.sorted() && observer.holes.isEmpty)
        #expect(observer.signals.map(\.sequence) == (1...UInt64(count)).map { $0 })
        // Nothing more comes, and nothing wakes the service.
        try observer.run("no more") { true }
        #expect(try CenterProperties(in: poster.send(CenterProperties.getAll())).statistics[.queued] == 0)
    }

    @Test("Throttled notifications survive a kill of the service and arrive once", arguments: BusKind.available)
    func killed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let (poster, observer) = (try Client(on: bus), try Client(on: bus))
        _ = try observe("State", interval: 60_000, from: observer)
        for n in 1...300 { try post("State", "\(n % 100)", n: Int64(n), from: poster) }
        try observer.run("the first of each") { observer.signals.count == 100 }
        first.signal(SIGKILL)
        _ = try first.waitForExit()
        let second = try ServiceProcess(on: bus)
        try observer.run("what waited: \(second.transcript)") { observer.signals.count == 200 }
        #expect(observer.signals.suffix(100).map(\.number) == (201...300).map(Int64.init))
        // It is thinned as before.
        for n in 301...400 { try post("State", "\(n % 100)", n: Int64(n), from: poster) }
        try post("Other", n: 1, from: poster)
        #expect(try observer.call(RemoveObservers(name: "", object: "")) == 1)
        #expect(observer.signals.count == 200)
        second.signal(SIGTERM)
        _ = try second.waitForExit()
    }

    @Test("A minimum interval holds on a channel and together with a suspension", arguments: BusKind.available)
    func channel(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let poster = try Client(on: bus)
        let client = try ChannelClient(on: bus)
        _ = try observe("State", interval: 1000, .hold, from: client.client)
        for n in 1...3 { try post("State", n: Int64(n), from: poster) }
        try client.run("first and last: \(service.transcript)") { client.notifications.count == 2 }
        #expect(client.numbers == [1, 3])
        try client.client.call(SetSuspended(true))
        for n in 4...6 { try post("State", n: Int64(n), from: poster) }
        try client.client.call(SetSuspended(false))
        try client.run("what was held: \(service.transcript)") { client.notifications.count == 5 }
        try post("State", n: 7, from: poster)
        try post("State", n: 8, from: poster)
        #expect(client.numbers == [1, 3, 4, 5, 6])
        try client.run("the last: \(service.transcript)") { client.notifications.count == 6 }
        #expect(client.numbers.last == 8)
    }
}
