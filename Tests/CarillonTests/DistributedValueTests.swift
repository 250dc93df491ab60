// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Glibc
import Observation
import Testing

/// What a program says of itself, in several shapes.
private struct Player: Codable, Equatable, Sendable {
    var title: String
    var isPlaying = true
}

/// A program's own model beside the library: the macro needs names that a library can hide.
@Observable private final class Panel {
    var brightness = 0
}

/// What codes nothing.
private struct Unencodable: Codable, Sendable {
    struct Never: Error {}
    init() {}
    init(from decoder: any Decoder) throws { throw Never() }
    func encode(to encoder: any Encoder) throws { throw Never() }
}

/// One that does something in the end.
private final class Ending: Codable, Sendable {
    private enum CodingKeys: String, CodingKey { case number }
    let number: Int
    private let end: (@Sendable () -> Void)?

    init(_ number: Int, _ end: (@Sendable () -> Void)? = nil) {
        self.number = number
        self.end = end
    }

    init(from decoder: any Decoder) throws {
        number = try decoder.container(keyedBy: CodingKeys.self).decode(Int.self, forKey: .number)
        end = nil
    }

    deinit { end?() }
}

/// A value that the service keeps, as a property (R1 to R3).
@Suite("R1 to R3: a retained value as a property", .limited)
struct DistributedValueTests {
    private let name = Notification.Name("org.example.Player")

    private func number(
        _ center: DistributedNotificationCenter, _ object: String? = nil,
        retention: DistributedNotificationCenter.Retention = .untilReplaced
    ) -> DistributedValue<Int> {
        DistributedValue(named: name, object: object, retention: retention, center: center)
    }

    private func sees<Value: Equatable>(_ value: DistributedValue<Value>, _ expected: Value?) throws {
        try eventually("\(String(describing: expected)), not \(String(describing: value.value))") {
            value.value == expected
        }
    }

    /// Waits until the service, which may just have begun, says that.
    private func settled(_ value: DistributedValue<Int>, _ expected: Int?) async throws {
        try await eventuallyInTask("the service says \(String(describing: expected))") {
            // An error is that it has not been heard of yet.
            (try? await value.refresh()) == .some(expected)
        }
    }

    @Test(
        "A value created later finds the existing content, and each value sees the changes of the other",
        arguments: BusKind.available, [DistributedNotificationCenter.Transport.bus, .channel])
    func follows(kind: BusKind, transport: DistributedNotificationCenter.Transport) async throws {
        let desk = try Desk(kind)
        let centers = [desk.center(), desk.center()]
        for center in centers { center.transport = transport }
        let first = DistributedValue<Player>(named: name, object: "hall", center: centers[0])
        #expect(try await first.refresh() == nil && first.value == nil)
        try await first.set(Player(title: "Jeux"))
        #expect(first.value == Player(title: "Jeux"))

        let second = DistributedValue<Player>(named: name, object: "hall", center: centers[1])
        try sees(second, Player(title: "Jeux"))
        second.value?.isPlaying = false
        #expect(second.value == Player(title: "Jeux", isPlaying: false))
        try sees(first, Player(title: "Jeux", isPlaying: false))
        first.value = Player(title: "Nuages")
        try sees(second, Player(title: "Nuages"))

        // As any program reads and sets it.
        let kept = try await centers[1].value(named: name, object: "hall")
        #expect(kept?.notification.userInfo as? [String: AnyHashable] == ["title": "Nuages", "isPlaying": true])
        try await centers[1].postAndWait(
            named: name, object: "hall", userInfo: ["title": "Sirènes", "isPlaying": false],
            retention: .untilReplaced)
        for value in [first, second] { try sees(value, Player(title: "Sirènes", isPlaying: false)) }

        // What an object has another has not, nor has it the value without one.
        let others = [nil, "HALL"].map { DistributedValue<Player>(named: name, object: $0, center: centers[0]) }
        for other in others { #expect(try await other.refresh() == nil && other.value == nil) }
        others[0].value = Player(title: "of none")
        try sees(others[0], Player(title: "of none"))
        #expect(try await first.refresh() == Player(title: "Sirènes", isPlaying: false))
        #expect(first.error == nil && second.error == nil)
    }

    @Test("A refresh detects the removal of a value, and messages in flight do not restore the value")
    func removed() async throws {
        let desk = try Desk()
        let (first, second) = (number(desk.center(), "a"), number(desk.center(), "a"))
        try await first.set(1)
        try sees(second, 1)
        try await first.remove()
        #expect(first.value == nil)
        #expect(try await first.center.values(named: name).isEmpty)
        #expect(second.value == 1, "nobody is told (R1)")
        #expect(try await second.refresh() == nil && second.value == nil)

        for round in 2...50 {
            first.value = round
            first.value = nil
            #expect(first.value == nil)
        }
        #expect(try await first.refresh() == nil && first.value == nil)
        first.value = 51
        first.value = nil
        first.value = 52
        try sees(second, 52)
        for value in [first, second] { #expect(try await value.refresh() == 52) }
        #expect(first.value == 52 && first.error == nil)

        // Who lets go of it at once wants it removed all the same.
        DistributedValue<Int>(named: name, object: "a", center: second.center).value = nil
        #expect(await second.center.flush())
        try await settled(first, nil)
    }

    @Test("The value without an object can't be removed while other objects of the name have values")
    func withoutObject() async throws {
        let desk = try Desk()
        let (plain, other) = (number(desk.center()), number(desk.center(), "b"))
        try await plain.set(1)
        try await plain.remove()
        #expect(try await plain.refresh() == nil)
        try await plain.remove()
        try await plain.set(2)
        try await other.set(3)
        await #expect(throws: DistributedNotificationError.self) { try await plain.remove() }
        #expect(plain.value == 2)
        plain.value = nil
        try eventually("it says so") { plain.error != nil && plain.value == 2 }
        #expect(plain.center.statistics.failedPosts == 1)
        #expect(try await other.refresh() == 3)
        #expect(try await plain.refresh() == 2 && plain.error == nil)
        try await other.remove()
        try await plain.remove()
        #expect(try await plain.center.values(named: nil).isEmpty)
    }

    @Test(
        "A post that does not decode to the type leaves the value unchanged, and is counted and reported",
        arguments: BusKind.available)
    func undecodable(kind: BusKind) async throws {
        let desk = try Desk(kind)
        let value = DistributedValue<Player>(named: name, object: "hall", center: desk.center())
        let poster = desk.center()
        try await value.set(Player(title: "Jeux"))
        try await poster.postAndWait(named: name, object: "hall", userInfo: ["title": 7], retention: .untilReplaced)
        try eventually("it is told") { value.error != nil }
        guard case .decodingFailed("Player", let reason)? = value.error else {
            throw NotInTime("\(String(describing: value.error))")
        }
        #expect(reason.contains("title"))
        #expect(value.value == Player(title: "Jeux") && value.center.statistics.undecodable == 1)
        // Who asks gets the error, and it stays as it is.
        await #expect(throws: DistributedNotificationError.self) { try await value.refresh() }
        #expect(value.value == Player(title: "Jeux") && value.center.statistics.undecodable == 1)
        let late = DistributedValue<Player>(named: name, object: "hall", center: desk.center())
        try eventually("a late one is told, too") { late.error != nil && late.value == nil }
        #expect(late.center.statistics.undecodable == 1)

        try await poster.postAndWait(
            named: name, object: "hall", userInfo: ["title": "Nuages", "isPlaying": true], retention: .untilReplaced)
        for value in [value, late] {
            try sees(value, Player(title: "Nuages"))
            #expect(value.error == nil)
        }
    }

    @Test("A value that can't be posted is refused with an error, and the property returns to the previous value")
    func refused() async throws {
        let desk = try Desk()
        let center = desk.center()
        let events = Inbox<DistributedNotificationError>()
        let observation = center.observeEvents { event in
            if case .postFailed(let error) = event { events.add(error) }
        }
        for value in [
            DistributedValue<Int>(named: .init(""), center: center),
            DistributedValue<Int>(named: name, object: "a\0", center: center),
            number(center, "a", retention: .untilReplaced.expiring(after: .zero)),
        ] {
            await #expect(throws: DistributedNotificationError.self) { try await value.set(1) }
            #expect(value.value == nil && value.error == nil)
            value.value = 1
            #expect(value.value == nil && value.error != nil)
        }
        #expect(center.statistics.failedPosts == 3)
        // An empty name would be any.
        try await number(center, "kept").set(1)
        let unnamed = DistributedValue<Int>(named: .init(""), center: center)
        await #expect(throws: DistributedNotificationError.invalidName("")) { try await unnamed.refresh() }
        await #expect(throws: DistributedNotificationError.invalidName("")) { try await unnamed.remove() }
        #expect(try await center.values(named: nil).count == 1)

        let unencodable = DistributedValue<Unencodable>(named: name, center: center)
        unencodable.value = Unencodable()
        guard case .encodingFailed("Unencodable", _)? = unencodable.error else {
            throw NotInTime("\(String(describing: unencodable.error))")
        }

        // By the service: larger than it takes.
        let large = DistributedValue<String>(named: name, object: "large", center: center)
        try await large.set("small")
        let text = String(repeating: "x", count: 8 << 20)
        await #expect(throws: DistributedNotificationError.self) { try await large.set(text) }
        #expect(large.value == "small" && large.error == nil)
        large.value = text
        try eventually("it goes back") { large.value == "small" && large.error != nil }
        try eventually("it is reported: \(events.all)") { events.all.count == 5 }
        try await large.set("other")
        #expect(large.value == "other" && large.error == nil)
        withExtendedLifetime(observation) {}
    }

    @Test("A value survives a kill of the service and can be changed afterwards", arguments: BusKind.available)
    func killed(kind: BusKind) async throws {
        let desk = try Desk(kind)
        let (first, second) = (number(desk.center(), "a"), number(desk.center(), "a"))
        try await first.set(1)
        try sees(second, 1)
        desk.service.signal(SIGKILL)
        _ = try desk.service.waitForExit()
        #expect(first.value == 1 && second.value == 1)
        let service = try ServiceProcess(on: desk.bus)
        try await settled(second, 1)
        try await second.set(2)
        try sees(first, 2)
        first.value = 3
        try sees(second, 3)
        let late = number(desk.center(), "a")
        try sees(late, 3)
        withExtendedLifetime(service) {}
    }

    @Test("The property follows a service that has lost all values and restarts its serial numbers")
    func forgotten() async throws {
        let bus = try PrivateBus(.dbusDaemon)
        let forgets = ["XDG_RUNTIME_DIR": ""]
        let old = try ServiceProcess(on: bus, environment: forgets)
        let centers = (0..<2).map { _ in DistributedNotificationCenter(busAddress: bus.address) }
        for center in centers { center.defaultDelivery = .ownQueue }
        let (first, second) = (number(centers[0], "a"), number(centers[1], "a"))
        for number in 1...20 { try await first.set(number) }
        #expect(try await second.refresh() == 20)
        old.signal(SIGKILL)
        _ = try old.waitForExit()
        let new = try ServiceProcess(on: bus, environment: forgets)
        // They ask by themselves.
        for value in [first, second] { try sees(value, nil) }
        try await first.set(21)
        try sees(second, 21)
        second.value = 22
        try sees(first, 22)
        #expect(try await first.center.value(named: name, object: "a")?.serial ?? 99 < 20, "it counts anew")
        withExtendedLifetime(new) {}
    }

    @Test("A loss during a reading causes one further reading, and only one reading runs at a time")
    func lossWhileReading() async throws {
        let bus = try PrivateBus()
        let service = try FakeService(on: bus)
        let center = DistributedNotificationCenter(busAddress: bus.address)
        center.defaultDelivery = .ownQueue
        let value = number(center, "a")
        let gaps = Inbox<DistributedNotificationCenter.Gap>()
        let observation = center.observeEvents { event in
            if case .mayHaveMissedNotifications(let gap) = event { gaps.add(gap) }
        }
        let (onTheirWay, asked) = try await onOwnThread {
            try service.waitForObserver()
            service.drop(1)
            try eventually("the first question") { service.readingCount == 1 }
            // The question is on its way while two more losses are announced.
            for _ in 0..<2 { service.drop(1) }
            _ = try gaps.wait(for: 3)
            try center.settle()
            let onTheirWay = service.unansweredReadings
            // This answer may be older than what was lost.
            try service.answerReading(1, object: "a", serial: 1)
            try service.answerReading(2, object: "a", serial: 2)
            try sees(value, 2)
            try center.settle()
            return (onTheirWay, service.readingCount)
        }
        #expect(onTheirWay == 1)
        #expect(asked == 2, "nothing was lost since the second question")
        withExtendedLifetime(observation) {}
    }

    @Test("A while-connected value ends with its center, and an expiring value after its time")
    func ends() async throws {
        let desk = try Desk()
        let (there, soon) = (number(desk.center(), "here"), number(desk.center(), "soon"))
        var present: DistributedValue? = number(desk.center(), "here", retention: .whileConnected)
        present?.value = 1
        try sees(there, 1)
        let short = number(desk.center(), "soon", retention: .untilReplaced.expiring(after: .milliseconds(500)))
        // Its time may be over before it is looked at, where much else runs.
        repeat { try await short.set(2) } while try await soon.refresh() != 2
        present = nil
        for value in [there, soon] {
            try await settled(value, nil)
            #expect(value.value == nil)
        }
    }

    @Test("Observation reports each change of the value exactly once")
    func observed() async throws {
        let desk = try Desk()
        let (value, poster) = (number(desk.center(), "a"), number(desk.center(), "a"))
        let tracker = Tracker(value)
        try await poster.set(1)
        try eventually("the change: \(tracker.all)") { tracker.all == [1] }
        // Here it is told at once, and not again when the service has it, or when it comes again as it was.
        value.value = 2
        #expect(tracker.all == [1, 2])
        for value in [value, poster] { #expect(try await value.refresh() == 2) }
        try await poster.set(2)
        try await value.set(2)
        try await poster.set(3)
        try sees(value, 3)
        #expect(tracker.all == [1, 2, 3])
        try await poster.remove()
        #expect(try await value.refresh() == nil)
        try await value.remove()
        #expect(tracker.all == [1, 2, 3, nil])

        // An error is told to who looks at that.
        let errors = Inbox<Bool>()
        withObservationTracking {
            _ = value.error
        } onChange: {
            errors.add(value.error == nil)
        }
        try await poster.center.postAndWait(named: name, object: "a", userInfo: ["x": 1], retention: .untilReplaced)
        try eventually("the error") { errors.all == [false] && value.error != nil }
    }

    #if compiler(>=6.2)
        @Test("An observation on another thread sees the last value set")
        func observedElsewhere() async throws {
            let desk = try Desk()
            let value = number(desk.center(), "a")
            let seen = Inbox<Int?>()
            let reader = Task.detached { for await each in Observations({ value.value }) { seen.add(each) } }
            for number in 1...300 {
                value.value = number
                try await eventuallyInTask("\(number) is seen") { seen.all.last == .some(number) }
            }
            reader.cancel()
        }
    #endif

    @Test("A file that imports the library can declare @Observable classes")
    func macro() {
        let (panel, changes) = (Panel(), Inbox<Bool>())
        withObservationTracking {
            _ = panel.brightness
        } onChange: {
            changes.add(true)
        }
        panel.brightness = 80
        #expect(changes.all == [true])
    }

    @Test("Values set in sequence never revert to an earlier one", arguments: BusKind.available)
    func steady(kind: BusKind) async throws {
        let desk = try Desk(kind)
        let (value, other) = (number(desk.center(), "a"), number(desk.center(), "a"))
        let tracker = Tracker(value)
        for number in 1...500 {
            value.value = number
            #expect(value.value == number)
            // Now and then all is answered before the next.
            if number % 100 == 0 { #expect(await value.center.flush()) }
        }
        try sees(other, 500)
        #expect(try await value.refresh() == 500)
        #expect(tracker.all == (1...500).map { $0 })
        #expect(value.value == 500 && value.error == nil)
    }

    @Test(
        "Concurrent changes of several programs end with the service's value in all of them",
        arguments: BusKind.available)
    func together(kind: BusKind) async throws {
        let desk = try Desk(kind)
        let values = (0..<3).map { _ in number(desk.center(), "a") }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (place, value) in values.enumerated() {
                group.addTask {
                    for round in 1...100 {
                        if round % 10 == 0 {
                            try await value.set(1000 * place + round)
                        } else {
                            value.value = 1000 * place + round
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        for value in values { #expect(await value.center.flush()) }
        let kept = try #require(
            try await values[0].center.value(named: name, object: "a")?.notification.userInfo?["value"] as? Int)
        for value in values { try sees(value, kept) }
        for value in values { #expect(try await value.refresh() == kept && value.error == nil) }
    }

    @Test("During suspension own changes are visible at once, and changes of others after the resume")
    func suspended() async throws {
        let desk = try Desk()
        let (value, other) = (number(desk.center(), "a"), number(desk.center(), "a"))
        value.center.suspended = true
        #expect(await value.center.flush())
        try await other.set(1)
        try await value.set(2)
        try await other.set(3)
        #expect(await value.center.flush())
        #expect(try await value.refresh() == 3)
        try await other.set(4)
        #expect(value.value == 3)
        value.center.suspended = false
        try sees(value, 4)
    }

    @Test("The deinit of an old value may read the property")
    func endsInside() async throws {
        let desk = try Desk()
        let (value, poster) = (
            DistributedValue<Ending>(named: name, center: desk.center()),
            DistributedValue<Ending>(named: name, center: desk.center())
        )
        let ends = Inbox<Int>()
        for round in 1...3 {
            value.value = Ending(round) { [weak value] in
                ends.add(round)
                _ = value?.value
            }
        }
        try eventually("all but the last: \(ends.all)") { ends.all.count >= 2 }
        #expect(try await value.refresh()?.number == 3)
        try await poster.set(Ending(4))
        try eventually("the last: \(ends.all)") { ends.all.sorted() == [1, 2, 3] && value.value?.number == 4 }
    }

    @Test("Only the program keeps a value alive, and the value keeps its center alive")
    func lifetime() async throws {
        let desk = try Desk()
        var value: DistributedValue? = number(desk.center(), "a")
        try await value?.set(1)
        let (held, center) = (Weak<DistributedValue<Int>>(), Weak<DistributedNotificationCenter>())
        (held.object, center.object) = (value, value?.center)
        #expect(center.object != nil)
        try expectObserverCounts([1], on: desk.bus)
        value = nil
        try eventually("both are gone") { held.object == nil && center.object == nil }
        try expectObserverCounts([], on: desk.bus)
    }
}

/// Is told of the changes of a value.
private final class Tracker: Sendable {
    private let value: DistributedValue<Int>
    private let past = Inbox<Int?>()

    init(_ value: DistributedValue<Int>) {
        self.value = value
        track()
    }

    var all: [Int?] { past.all }

    private func track() {
        withObservationTracking {
            _ = value.value
        } onChange: { [self] in
            past.add(value.value)
            track()
        }
    }
}
