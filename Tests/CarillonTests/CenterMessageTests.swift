// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

private struct Saved: DistributedNotificationCenter.AsyncMessage, Equatable {
    static let name = Notification.Name("com.example.Saved")
    var path: String
    var bytes = 0
}

private struct Opened: DistributedNotificationCenter.MainActorMessage {
    static let name = Notification.Name("com.example.Opened")
    var count: Int
}

extension DistributedNotificationCenter.MessageIdentifier
where Self == DistributedNotificationCenter.BaseMessageIdentifier<Saved> {
    fileprivate static var saved: Self { .init() }
}

extension DistributedNotificationCenter.MessageIdentifier
where Self == DistributedNotificationCenter.BaseMessageIdentifier<Opened> {
    fileprivate static var opened: Self { .init() }
}

/// Nobody but this file knows it.
private struct Hidden: DistributedNotificationCenter.AsyncMessage {
    struct Inner: DistributedNotificationCenter.MainActorMessage {}
}

@Suite("Messages as in Foundation's center", .limited)
struct CenterMessageTests {
    @Test("An asynchronous observer receives messages of a subject or of all, in order, until its token ends")
    func asynchronous() async throws {
        let desk = try Desk()
        let (center, poster) = (desk.center(), desk.center())
        let (one, all) = (Inbox<Int>(), Inbox<Int>())
        var token: DistributedNotificationCenter.ObservationToken?
        token = center.addObserver(of: "a", for: .saved) { message in
            await Task.yield()
            one.add(message.bytes)
        }
        let ofAll = center.addObserver(of: String.self, for: .saved) { message in all.add(message.bytes) }
        try center.settle()
        for number in 0..<50 {
            poster.post(Saved(path: "x", bytes: number), subject: number.isMultiple(of: 2) ? "a" : "b")
        }
        poster.post(Saved(path: "x", bytes: 50))
        #expect(try await all.values(51) == Array(0...50))
        #expect(try await one.values(25) == (0..<25).map { $0 * 2 })
        try expectObserverCounts([2], on: desk.bus)
        #expect(token != nil)
        token = nil
        try center.settle()
        try expectObserverCounts([1], on: desk.bus)
        // Another center's token is none of its own.
        poster.removeObserver(ofAll)
        try poster.settle()
        try expectObserverCounts([1], on: desk.bus)
        center.removeObserver(ofAll)
        try center.settle()
        try expectObserverCounts([], on: desk.bus)
    }

    @Test("Observers of main-actor messages run on the main actor, for a subject or for all")
    func mainActor() async throws {
        let desk = try Desk()
        let (center, poster) = (desk.center(), desk.center())
        let heard = Inbox<String>()
        let ofOne = center.addObserver(of: "a", for: Opened.self) { message in
            MainActor.preconditionIsolated()
            heard.add("a \(message.count)")
        }
        let ofAll = center.addObserver(of: String.self, for: .opened) { message in heard.add("all \(message.count)") }
        try center.settle()
        await MainActor.run {
            poster.post(Opened(count: 1), subject: "a")
            poster.post(Opened(count: 2), subject: "b")
            poster.post(Opened(count: 3))
        }
        #expect(try await heard.values(4) == ["a 1", "all 1", "all 2", "all 3"])
        #expect(center.statistics.undecodable == 0)
        center.removeObserver(ofOne)
        center.removeObserver(ofAll)
        try center.settle()
        try expectObserverCounts([], on: desk.bus)
    }

    @Test("A sequence buffers the newest messages since its iterator was made, and counts the discarded ones")
    func sequence() async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let messages = ear.center.messages(of: "a", for: .saved, bufferSize: 3)
        poster.post(Saved(path: "too early", bytes: -1), subject: "a")
        _ = try ear.everything(from: poster)
        try expectObserverCounts([1], on: desk.bus)
        do {
            var iterator = messages.makeAsyncIterator()
            try ear.center.settle()
            for number in 0..<5 { poster.post(Saved(path: "x", bytes: number), subject: "a") }
            poster.post(Saved(path: "x", bytes: 5), subject: "b")
            _ = try ear.everything(from: poster)
            var numbers: [Int] = []
            for _ in 0..<3 { numbers.append(await iterator.next(isolation: #isolation)?.bytes ?? -1) }
            #expect(numbers == [2, 3, 4])
            #expect(ear.center.statistics.overflowed == 2)
            try expectObserverCounts([2], on: desk.bus)
        }
        try ear.center.settle()
        try expectObserverCounts([1], on: desk.bus)
    }

    /// The same on the wire, of the other kind.
    private struct OldSaved: DistributedMessage {
        static let name = Saved.name
        var path: String
        var bytes: Int
    }

    @Test("Each kind of message reaches observers of every kind, and undecodable notifications are counted")
    func others() async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let (messages, olds, plain) = (Inbox<Saved>(), Inbox<Int>(), Inbox<Int>())
        let token = ear.center.addObserver(for: Saved.self) { message in messages.add(message) }
        let old = ear.center.observe(OldSaved.self) { olds.add($0.bytes) }
        let all = ear.center.observe(Saved.name) { plain.add($0.userInfo?["bytes"] as? Int ?? -1) }
        try ear.center.settle()
        poster.post(name: Saved.name, object: "o", userInfo: ["path": "1", "bytes": UInt8(1)])
        poster.post(Saved(path: "2", bytes: 2), subject: "o")
        try await poster.postAndWait(OldSaved(path: "3", bytes: 3))
        poster.post(name: Saved.name, object: nil, userInfo: ["path": 4])
        poster.post(Saved(path: "5", bytes: 5))
        let expected = [1, 2, 3, 5].map { Saved(path: "\($0)", bytes: $0) }
        #expect(try await messages.values(4) == expected)
        #expect(try olds.wait(for: 4) == [1, 2, 3, 5])
        #expect(try plain.wait(for: 5) == [1, 2, 3, -1, 5])
        #expect(ear.center.statistics.undecodable == 2)
        withExtendedLifetime((token, old, all)) {}
    }

    /// Speaks as an older program does, and is written as for Foundation's center.
    private struct Done: DistributedNotificationCenter.AsyncMessage {
        static let name = Notification.Name("com.example.Done")
        var percent: Int

        static func makeMessage(_ notification: Notification) -> Done? {
            (notification.userInfo?["done"] as? Double).map { Done(percent: Int($0 * 100)) }
        }

        static func makeNotification(_ message: Done) -> Notification {
            Notification(name: name, object: "ignored", userInfo: ["done": Double(message.percent) / 100])
        }
    }

    @Test("A message type can define its own conversion to and from a notification")
    func conversions() async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let (percents, plain) = (Inbox<Int>(), Inbox<String>())
        let token = ear.center.addObserver(for: Done.self) { message in percents.add(message.percent) }
        let all = ear.center.observe(Done.name) { plain.add("\($0.object ?? "") \($0.userInfo ?? [:])") }
        try ear.center.settle()
        poster.post(Done(percent: 50), subject: "o")
        poster.post(name: Done.name, object: nil, userInfo: ["percent": 60])
        poster.post(name: Done.name, object: nil, userInfo: ["done": 0.75])
        #expect(try await percents.values(2) == [50, 75])
        #expect(try plain.wait(for: 3).first == #"o [AnyHashable("done"): 0.5]"#)
        #expect(ear.center.statistics.undecodable == 1)
        withExtendedLifetime((token, all)) {}
    }

    private struct Document: Identifiable, DistributedNotificationCenter.MessageSubject {
        let id: String
    }
    private enum Theme: String, DistributedNotificationCenter.MessageSubject {
        case light, dark
    }
    private struct Changed: DistributedNotificationCenter.AsyncMessage {
        typealias Subject = Document
        static let name = Notification.Name("com.example.Changed")
        var number: Int
    }
    private struct Chosen: DistributedNotificationCenter.AsyncMessage {
        typealias Subject = Theme
        static let name = Notification.Name("com.example.Chosen")
    }

    @Test("Subjects are matched by their text, and a subject with an empty text is no subject")
    func subjects() async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let heard = Inbox<String>()
        let tokens = [
            ear.center.addObserver(of: Document(id: "a"), for: Changed.self) { heard.add("a \($0.number)") },
            ear.center.addObserver(of: Document(id: "b"), for: Changed.self) { heard.add("b \($0.number)") },
            ear.center.addObserver(of: Theme.dark, for: Chosen.self) { _ in heard.add("dark") },
        ]
        let objects = Inbox<String>()
        let all = ear.center.observe(nil) { objects.add($0.object as? String ?? "-") }
        try ear.center.settle()
        poster.post(Changed(number: 1), subject: Document(id: "b"))
        poster.post(Changed(number: 2), subject: Document(id: ""))
        poster.post(Changed(number: 3))
        poster.post(Chosen(), subject: .light)
        poster.post(Chosen(), subject: .dark)
        #expect(try await objects.values(5) == ["b", "-", "-", "light", "dark"])
        // Each has a task of its own.
        #expect(try await heard.values(2).sorted() == ["b 1", "dark"])
        withExtendedLifetime((tokens, all)) {}
    }

    @Test("The default name of a message type contains its module and type, also for a private type")
    func names() {
        #expect(Hidden.name.rawValue == "CarillonTests.Hidden")
        #expect(Hidden.Inner.name.rawValue == "CarillonTests.Hidden.Inner")
        struct Local: DistributedNotificationCenter.AsyncMessage {}
        #expect(Local.name.rawValue.hasSuffix("Local") && !Local.name.rawValue.contains("unknown"))
    }

    @Test("An asynchronous observer has the origin of its message after a suspension point")
    func origin() async throws {
        let desk = try Desk()
        let center = desk.center()
        let sequences = Inbox<UInt64>()
        let token = center.addObserver(for: Saved.self) { _ in
            await Task.yield()
            sequences.add(Origin.current?.sequence ?? 0)
        }
        try center.settle()
        for _ in 0..<3 { center.post(Saved(path: "x")) }
        #expect(try await sequences.values(3) == [1, 2, 3])
        withExtendedLifetime(token) {}
    }

    @Test("A post of a main-actor message returns before its observers run on the main thread")
    @MainActor
    func postReturns() throws {
        let desk = try Desk()
        let center = desk.center()
        let heard = Inbox<Int>()
        let token = center.addObserver(for: Opened.self) { message in heard.add(message.count) }
        center.post(Opened(count: 1))
        // The service has sent it; this is the thread on which it is to be heard.
        try center.settle()
        try eventually("it has arrived") { center.statistics.received == 1 }
        #expect(heard.all.isEmpty)
        withExtendedLifetime(token) {}
    }

    @Test("A waiting asynchronous observer does not block other observers")
    func independent() async throws {
        let desk = try Desk()
        let center = desk.center()
        let heard = Inbox<String>()
        let gate = Gate()
        let tokens = [
            center.addObserver(for: Saved.self) { _ in
                await gate.pass()
                heard.add("first")
            },
            center.addObserver(for: Saved.self) { _ in heard.add("second") },
        ]
        try center.settle()
        center.post(Saved(path: "x"))
        #expect(try await heard.values(1) == ["second"])
        gate.open()
        #expect(try await heard.values(2) == ["second", "first"])
        withExtendedLifetime(tokens) {}
    }

    @Test("The distributed center is no subclass of Foundation's center")
    func noSubclass() {
        let center: Any = DistributedNotificationCenter(busAddress: "unix:path=/nonexistent")
        #expect(!(center is Foundation.NotificationCenter))
    }

    private struct Nameless: DistributedNotificationCenter.AsyncMessage {
        static let name = Notification.Name("")
    }
    private struct Unencodable: DistributedNotificationCenter.AsyncMessage {
        struct Reason: Error {}
        init() {}
        init(from decoder: any Decoder) throws {}
        func encode(to encoder: any Encoder) throws { throw Reason() }
    }

    @Test("Messages and observers without a valid name or encoding are refused, counted and reported")
    func refused() throws {
        let center = DistributedNotificationCenter(busAddress: "unix:path=/nonexistent")
        center.defaultDelivery = .ownQueue
        let reports = Inbox<String>()
        let observation = center.observeEvents { event in
            switch event {
            case .postFailed(.encodingFailed(let type, _)): reports.add("encoding of \(type)")
            case .postFailed(.invalidName): reports.add("post without a name")
            case .observerRefused(_, _, .invalidName): reports.add("observer without a name")
            default: break
            }
        }
        center.post(Unencodable())
        center.post(Nameless(), subject: "o")
        let token = center.addObserver(for: Nameless.self) { _ in }
        #expect(center.statistics.failedPosts == 2 && center.statistics.posted == 0)
        #expect(center.statistics.refusedObservers == 1)
        #expect(
            try reports.wait(for: 3) == ["encoding of Unencodable", "post without a name", "observer without a name"])
        withExtendedLifetime((observation, token)) {}
    }

    private struct Large: DistributedNotificationCenter.AsyncMessage {
        static let name = Notification.Name("com.example.Large")
        var number: Int
        var payload: Data
    }

    @Test("T2: the waiting messages of an observer are limited in bytes; the oldest are discarded and reported")
    func bounded() async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let (numbers, told) = (Inbox<Int>(), Inbox<UInt64>())
        let observation = ear.center.observeEvents { event in
            if case .mayHaveMissedNotifications(.overflow(let count)) = event { told.add(count) }
        }
        let (gate, begun) = (Gate(), Gate())
        let token = ear.center.addObserver(for: Large.self) { message in
            if message.number == 0 {
                begun.open()
                await gate.pass()
            }
            numbers.add(message.number)
        }
        try ear.center.settle()
        poster.post(Large(number: 0, payload: Data()))
        await begun.pass()
        let overflowed = try await onOwnThread {
            for number in 1...100 {
                poster.post(Large(number: number, payload: Data(count: 1_000_000)))
                // No more at once than the poster's own queue and the service's take.
                if number % 10 == 0 { _ = try ear.everything(from: poster) }
            }
            return Int(ear.center.statistics.overflowed)
        }
        #expect((30..<40).contains(overflowed), "64 MiB fit")
        gate.open()
        #expect(
            try await numbers.values(101 - overflowed) == [0] + Array(overflowed + 1...100))
        try await onOwnThread {
            try eventually("the program is told of all") { told.all.reduce(0, +) == UInt64(overflowed) }
        }
        withExtendedLifetime((observation, token)) {}
    }
}
