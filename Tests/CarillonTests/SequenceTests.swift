// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("Notifications as asynchronous sequences (C7)", .limited)
struct SequenceTests {
    private let name = Notification.Name("a")

    @Test("A sequence delivers all matching notifications in order, from its creation on")
    func order() async throws {
        let desk = try Desk()
        let (center, poster) = (desk.center(), desk.center())
        let notifications = center.notifications(named: name, object: "o")
        #expect(await center.flush())
        for number in 0..<100 { poster.post("a", number.isMultiple(of: 2) ? "o" : "p", number: number) }
        var numbers: [Int] = []
        for await note in notifications {
            #expect(note.name == name && note.object as? String == "o")
            numbers.append(note.userInfo?["number"] as? Int ?? -1)
            if numbers.count == 50 { break }
        }
        #expect(numbers == (0..<50).map { $0 * 2 })
    }

    @Test("A full sequence discards the oldest notifications, and counts and reports them", arguments: [1, 2, 10])
    func overflow(limit: Int) async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let lost = Inbox<UInt64>()
        let observation = ear.center.observeEvents { event in
            if case .mayHaveMissedNotifications(.overflow(let count)) = event { lost.add(count) }
        }
        let notifications = ear.center.notifications(named: name, bufferLimit: limit)
        try ear.center.settle()
        for number in 0..<50 { poster.post("a", number: number) }
        _ = try ear.everything(from: poster)
        #expect(ear.center.statistics.overflowed == UInt64(50 - limit))
        var numbers: [Int] = []
        for await note in notifications {
            numbers.append(note.userInfo?["number"] as? Int ?? -1)
            if numbers.count == limit { break }
        }
        #expect(numbers == Array((50 - limit)..<50))
        try eventually("the program is told") { lost.all.reduce(0, +) == UInt64(50 - limit) }
        withExtendedLifetime(observation) {}
    }

    @Test("A slow reader's losses are all reported, in few events")
    func storm() async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let lost = Inbox<UInt64>()
        let observation = ear.center.observeEvents { event in
            if case .mayHaveMissedNotifications(.overflow(let count)) = event { lost.add(count) }
        }
        let notifications = ear.center.notifications(named: name, bufferLimit: 1)
        try ear.center.settle()
        for number in 0..<300 {
            poster.post("a", number: number)
            if number % 3 == 0 { _ = await poster.flush() }
        }
        _ = try ear.everything(from: poster)
        let count = ear.center.statistics.overflowed
        #expect(count == 299)
        try eventually("the program is told") { lost.all.reduce(0, +) == count }
        #expect(lost.all.count < 20, "\(lost.all.count) events")
        withExtendedLifetime((observation, notifications)) {}
    }

    @Test("A message sequence can begin with retained values, and can have a minimum interval")
    func messageOptions() async throws {
        struct Progress: DistributedMessage, Equatable {
            static let name = Notification.Name("progress")
            var number: Int
        }
        let desk = try Desk()
        let (center, poster) = (desk.center(), desk.center())
        try await poster.postAndWait(Progress(number: 1), retention: .untilReplaced)
        var values = center.messages(of: Progress.self, retained: true).makeAsyncIterator()
        #expect(await values.next() == Progress(number: 1))
        var seldom = center.messages(of: Progress.self, minimumInterval: .seconds(1)).makeAsyncIterator()
        try center.settle()
        for number in 2..<7 { try poster.post(Progress(number: number)) }
        #expect(await seldom.next() == Progress(number: 2))
        #expect(await seldom.next() == Progress(number: 6))
    }

    @Test("A cancelled reader ends together with its registration")
    func cancelled() async throws {
        let desk = try Desk()
        let center = desk.center()
        let notifications = center.notifications(named: name)
        try center.settle()
        try expectObserverCounts([1], on: desk.bus)
        let reader = Task { () -> Int in
            var count = 0
            for await _ in notifications { count += 1 }
            return count
        }
        reader.cancel()
        #expect(await reader.value == 0)
        try center.settle()
        try expectObserverCounts([], on: desk.bus)
    }

    @Test("Each iterator receives all notifications, and cancellation ends only its own iterator")
    func readers() async throws {
        let desk = try Desk()
        let center = desk.center()
        let notifications = center.notifications(named: name)
        var iterators = (0..<3).map { _ in notifications.makeAsyncIterator() }
        let cancelled = Task { for await _ in notifications {} }
        cancelled.cancel()
        await cancelled.value
        try center.settle()
        for number in 0..<10 { center.post("a", number: number) }
        for place in iterators.indices {
            var numbers: [Int] = []
            while numbers.count < 10, let note = await iterators[place].next() {
                numbers.append(note.userInfo?["number"] as? Int ?? -1)
            }
            #expect(numbers == Array(0..<10), "\(place)")
        }
        // A later one begins when it is made.
        var late = notifications.makeAsyncIterator()
        try center.settle()
        center.post("a", number: 10)
        #expect(await late.next()?.userInfo?["number"] as? Int == 10)
        iterators = []
    }

    @Test("A sequence can begin with retained values, and can have a minimum interval (R2, R5)")
    func values() async throws {
        let desk = try Desk()
        let (center, poster) = (desk.center(), desk.center())
        try await poster.postAndWait(named: name, object: "o", userInfo: ["number": 1], retention: .untilReplaced)
        var values = center.notifications(named: name, retained: true).makeAsyncIterator()
        #expect(await values.next()?.userInfo?["number"] as? Int == 1)
        var seldom = center.notifications(named: .init("b"), minimumInterval: .seconds(1)).makeAsyncIterator()
        try center.settle()
        for number in 0..<5 { poster.post("b", number: number) }
        var numbers: [Int?] = []
        for _ in 0..<2 { numbers.append(await seldom.next()?.userInfo?["number"] as? Int) }
        #expect(numbers == [0, 4])
    }

    @Test(
        "T3: a reader on the main actor lets other blocks of the main queue run between notifications",
        .timeLimit(.minutes(1)))
    @MainActor
    func turns() async throws {
        let desk = try Desk()
        let center = desk.center()
        let notifications = center.notifications(named: name, bufferLimit: 10_000)
        #expect(await center.flush())
        for number in 0..<10_000 { center.post("a", number: number) }
        #expect(await center.flush())
        try await eventuallyInTask("all have arrived") { center.statistics.received == 10_000 }
        let turns = Turns()
        turns.goOn()
        var count = 0
        for await _ in notifications {
            count += 1
            if count == 10_000 { break }
        }
        turns.isOver = true
        #expect(turns.count > 1, "it decodes for more than 2 ms")
    }

    /// Blocks of the main queue, one after the other.
    @MainActor
    private final class Turns {
        var count = 0
        var isOver = false

        func goOn() {
            guard !isOver else { return }
            count += 1
            DispatchQueue.main.async { self.goOn() }
        }
    }

    @Test("A sequence ends if its observer is refused or its center is released", .timeLimit(.minutes(1)))
    func over() async throws {
        let desk = try Desk()
        for await _ in desk.center().notifications(named: name) { Issue.record("nobody has posted") }
        let center = desk.center()
        for await _ in center.notifications(named: name, object: NSNumber(value: 1)) { Issue.record("it is no text") }
        for await _ in center.notifications(named: .init("")) { Issue.record("no notification has that name") }
        #expect(center.statistics.refusedObservers == 2)
    }

    @Test("A discarded sequence leaves no registration, read or unread")
    func thrownAway() async throws {
        let desk = try Desk()
        let center = desk.center()
        do {
            let unread = center.notifications(named: name)
            var iterator = center.notifications(named: .init("b")).makeAsyncIterator()
            try center.settle()
            try expectObserverCounts([2], on: desk.bus)
            center.post("b", number: 1)
            #expect(await iterator.next() != nil)
            withExtendedLifetime(unread) {}
        }
        _ = center.notifications(named: .init("c"))
        _ = center.messages(of: Note.self)
        try center.settle()
        try expectObserverCounts([], on: desk.bus)
    }

    private struct Note: DistributedMessage {
        static let name = Notification.Name("note")
    }

    @Test("A sequence accepts an NSString as object and refuses an object that is no string")
    func foundation() async throws {
        let desk = try Desk()
        let center = desk.center()
        let notifications = center.notifications(named: name, object: "o" as NSString)
        center.post("a", "p", number: 1)
        center.post("a", "o", number: 2)
        var iterator = notifications.makeAsyncIterator()
        #expect(await iterator.next()?.userInfo?["number"] as? Int == 2)
        // What can't be an object between processes never arrives, and is counted.
        _ = center.notifications(named: name, object: NSNumber(value: 5))
        #expect(center.statistics.refusedObservers == 1)
    }

    @Test("A sequence of a suspended client receives notifications on resume by its suspension behavior")
    func suspended() async throws {
        let desk = try Desk()
        let (center, poster) = (desk.center(), desk.center())
        let coalesced = center.notifications(named: name)
        let held = center.notifications(named: name, suspensionBehavior: .hold)
        center.suspended = true
        try center.settle()
        for number in 0..<3 { poster.post("a", number: number) }
        try poster.settle()
        center.suspended = false
        // Two connections: without this the post could be the first of the two at the service.
        try center.settle()
        poster.post("a", number: 3)
        var numbers: [Int] = []
        for await note in held {
            numbers.append(note.userInfo?["number"] as? Int ?? -1)
            if numbers.count == 4 { break }
        }
        #expect(numbers == [0, 1, 2, 3])
        var iterator = coalesced.makeAsyncIterator()
        #expect(await iterator.next()?.userInfo?["number"] as? Int == 2)
    }
}
