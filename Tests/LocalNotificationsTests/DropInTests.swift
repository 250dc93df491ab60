// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Testing

// MARK: Code as it stands on macOS

/// A center that is given to who uses it, so that a test can give another.
protocol NotificationCenterProtocol {
    func addObserver(
        forName name: NSNotification.Name?, object obj: Any?, queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> any NSObjectProtocol
    func removeObserver(_ observer: Any)
    func removeObserver(_ observer: Any, name aName: NSNotification.Name?, object anObject: Any?)
    func post(_ notification: Notification)
    func post(name aName: NSNotification.Name, object anObject: Any?, userInfo aUserInfo: [AnyHashable: Any]?)
}

extension NotificationCenter: NotificationCenterProtocol {}

protocol NotificationQueueProtocol {
    func enqueue(_ notification: Notification, postingStyle: NotificationQueue.PostingStyle)
    func enqueue(
        _ notification: Notification, postingStyle: NotificationQueue.PostingStyle,
        coalesceMask: NotificationQueue.NotificationCoalescing, forModes modes: [RunLoop.Mode]?)
    func dequeueNotifications(
        matching notification: Notification, coalesceMask: NotificationQueue.NotificationCoalescing)
}

extension NotificationQueue: NotificationQueueProtocol {}

extension RunLoop.Mode {
    static let busy = RunLoop.Mode("busy")
}

/// Counts what goes through it.
private final class SpyCenter: NotificationCenter, @unchecked Sendable {
    // Sendable: the recorder is locked.
    let posted = Recorder<String>()
    let observed = Recorder<String>()

    override func post(_ notification: Notification) {
        posted.add(notification.name.rawValue)
        super.post(notification)
    }

    override func addObserver(
        forName name: Notification.Name?, object: Any?, queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> any NSObjectProtocol {
        observed.add(name?.rawValue ?? "all")
        return super.addObserver(forName: name, object: object, queue: queue, using: block)
    }
}

private final class Document: Sendable {}

private struct DidSave: NotificationCenter.AsyncMessage {
    typealias Subject = Document
    let path: String

    static var name: Notification.Name { Notification.Name("DidSave") }
    static func makeMessage(_ notification: Notification) -> DidSave? {
        (notification.userInfo?["path"] as? String).map { DidSave(path: $0) }
    }
    static func makeNotification(_ message: DidSave) -> Notification {
        Notification(name: name, userInfo: ["path": message.path])
    }
}

private struct DidOpen: NotificationCenter.MainActorMessage {
    typealias Subject = Document
    let count: Int
}

extension NotificationCenter.MessageIdentifier where Self == NotificationCenter.BaseMessageIdentifier<DidSave> {
    fileprivate static var didSave: Self { .init() }
}

extension NotificationCenter.MessageIdentifier where Self == NotificationCenter.BaseMessageIdentifier<DidOpen> {
    fileprivate static var didOpen: Self { .init() }
}

@Suite("A drop-in for Foundation's center and queue", .limited)
struct DropInTests {
    private let center = NotificationCenter()
    private let calls = Recorder<String>()

    @Test("The center can be injected as a dependency behind a protocol")
    func injection() {
        let center: any NotificationCenterProtocol = NotificationCenter()
        var token: NSObjectProtocol?
        token = center.addObserver(forName: .a, object: nil, queue: nil) { [calls] _ in calls.add("A") }
        center.post(name: .a, object: nil, userInfo: nil)
        if let token { center.removeObserver(token) }
        center.post(Notification(name: .a))
        #expect(calls.all == ["A"])
    }

    @Test("The queue can be injected behind a protocol, and accepts Foundation's modes and custom modes")
    func queueInjection() {
        let queue: any NotificationQueueProtocol = NotificationQueue(notificationCenter: center)
        center.addObserver(forName: nil, object: nil, queue: nil) { [calls] in calls.add($0.name.rawValue) }
        let context = MainContext()
        context.asThreadDefault {
            let modes: [RunLoop.Mode] = [.busy]
            queue.enqueue(Notification(name: .a), postingStyle: .asap, coalesceMask: [.onName], forModes: modes)
            queue.enqueue(Notification(name: .b), postingStyle: .whenIdle, coalesceMask: [], forModes: [.default])
            queue.enqueue(
                Notification(name: "C"), postingStyle: .asap, coalesceMask: .none, forModes: [.common, .busy])
            queue.enqueue(Notification(name: "D"), postingStyle: .asap)
            queue.dequeueNotifications(matching: Notification(name: "D"), coalesceMask: .onName)
            context.settle()
            #expect(calls.all == ["C", "B"])
            context.pushMode(RunLoopMode(.busy))
            context.settle()
            #expect(calls.all == ["C", "B", "A"])
        }
        #expect(RunLoopMode(RunLoop.Mode.default) == .default && RunLoopMode(RunLoop.Mode.common) == .common)
        #expect(RunLoopMode(RunLoop.Mode("NSModalPanelRunLoopMode")) == .modalPanel)
        #expect(RunLoopMode(RunLoop.Mode("NSEventTrackingRunLoopMode")) == .eventTracking)
    }

    @Test("Modes of the queue can be written as for Foundation's queue, without the name of their type")
    func modesWithoutType() {
        let queue = NotificationQueue(notificationCenter: .default)
        MainContext().asThreadDefault {
            queue.enqueue(Notification(name: .a), postingStyle: .asap, coalesceMask: .none, forModes: nil)
            queue.enqueue(Notification(name: .a), postingStyle: .asap, coalesceMask: .none, forModes: [.default])
            queue.enqueue(Notification(name: .a), postingStyle: .asap, coalesceMask: .none, forModes: [.busy])
            queue.enqueue(Notification(name: .a), postingStyle: .asap, coalesceMask: .none, forModes: [.modalPanel])
            #expect(queue.description.hasSuffix("4 waiting>"), "\(queue)")
        }
    }

    @Test("Centers and queues are equal by identity, and can be members of sets and keys of dictionaries")
    func equality() {
        let other = NotificationCenter()
        #expect(center == center && center != other && NotificationCenter.default == .default)
        #expect(Set([center, other, center]).count == 2)
        let queue = NotificationQueue(notificationCenter: other)
        #expect([queue: 1][queue] == 1 && queue != NotificationQueue(notificationCenter: other))
        #expect(NotificationQueue.default == .default)
    }

    @Test("Descriptions name the class")
    func descriptions() {
        center.addObserver(forName: .a, object: nil, queue: nil) { _ in }
        #expect("\(center)".hasPrefix("<NotificationCenter: 0x") && "\(center)".hasSuffix("1 observers>"))
        #expect("\(SpyCenter())".contains("SpyCenter"))
        #expect("\(NotificationQueue())".hasPrefix("<NotificationQueue: 0x"))
    }

    @Test("A subclass of the center can override posting and observing, also for posts of a queue")
    func subclass() {
        let spy = SpyCenter()
        let token = spy.addObserver(forName: .a, object: nil, queue: nil) { [calls] _ in calls.add("A") }
        spy.post(name: .a, object: nil)
        NotificationQueue(notificationCenter: spy).enqueue(Notification(name: .b), postingStyle: .now)
        spy.removeObserver(token)
        spy.post(name: .a, object: nil)
        #expect(spy.posted.all == ["A", "B", "A"] && spy.observed.all == ["A"] && calls.all == ["A"])
    }

    // MARK: Messages

    @Test("Asynchronous messages of a subject reach their observer in order, until the token ends")
    func asyncMessages() async {
        let (document, other) = (Document(), Document())
        let (rings, bell) = AsyncStream.makeStream(of: Void.self)
        let calls = calls
        var token: NotificationCenter.ObservationToken? = center.addObserver(of: document, for: .didSave) { message in
            calls.add(message.path)
            if message.path == "last" { bell.yield() }
        }
        for n in 0..<50 { center.post(DidSave(path: "\(n)"), subject: document) }
        center.post(DidSave(path: "other"), subject: other)
        center.post(DidSave(path: "last"), subject: document)
        // The observer needs a thread of the pool, which other tests may hold for minutes: no clock goes here.
        for await _ in rings { break }
        #expect(calls.all == (0..<50).map { "\($0)" } + ["last"])
        #expect(token != nil && center.observerCount == 1)
        token = nil
        #expect(center.observerCount == 0)
        let all = center.addObserver(of: Document.self, for: .didSave) { _ in }
        #expect(center.observerCount == 1)
        // Another center's token is none of its own.
        NotificationCenter().removeObserver(all)
        #expect(center.observerCount == 1)
        center.removeObserver(all)
        #expect(center.observerCount == 0)
    }

    @Test("A message reaches observers of its notification, and a notification reaches observers of its message")
    func interoperation() async {
        let heard = Recorder<String>()
        center.addObserver(forName: DidSave.name, object: nil, queue: nil) { notification in
            heard.add("notification \(notification.userInfo?["path"] as? String ?? "")")
        }
        let (rings, bell) = AsyncStream.makeStream(of: Void.self)
        var ring = rings.makeAsyncIterator()
        let token = center.addObserver(for: DidSave.self) { message in
            heard.add("message \(message.path)")
            bell.yield()
        }
        center.post(DidSave(path: "1"))
        await ring.next()
        center.post(name: DidSave.name, object: nil, userInfo: ["path": "2"])
        await ring.next()
        // What stands for no message is none.
        center.post(name: DidSave.name, object: nil)
        #expect(heard.all == ["notification 1", "message 1", "notification 2", "message 2", "notification "])
        withExtendedLifetime(token) {}
    }

    @Test("A sequence of messages begins with its iterator, and keeps the newest that fit into the buffer")
    func sequence() async {
        let document = Document()
        let sequence = center.messages(of: document, for: .didSave, bufferSize: 3)
        center.post(DidSave(path: "too early"), subject: document)
        var iterator = sequence.makeAsyncIterator()
        for n in 0..<5 { center.post(DidSave(path: "\(n)"), subject: document) }
        var paths: [String] = []
        for _ in 0..<3 { paths.append(await iterator.next(isolation: #isolation)?.path ?? "") }
        #expect(paths == ["2", "3", "4"])
        #expect(center.observerCount == 1)
    }

    @Test("C7, T2: messages that an iterator's buffer has no space for are counted")
    func lostMessages() async {
        await #expect(processExitsWith: .success) {
            let center = NotificationCenter()
            let document = Document()
            var iterator = center.messages(of: document, for: .didSave, bufferSize: 3).makeAsyncIterator()
            for n in 0..<3 { center.post(DidSave(path: "\(n)"), subject: document) }
            #expect(NotificationCenter.lostDeliveries == 0)
            for n in 3..<5 { center.post(DidSave(path: "\(n)"), subject: document) }
            #expect(NotificationCenter.lostDeliveries == 2)
            let first = await iterator.next(isolation: #isolation)
            #expect(first?.path == "2")
        }
    }

    @Test("Main-actor messages reach their observers before the post returns")
    @MainActor
    func mainActorMessages() {
        let document = Document()
        var counts: [Int] = []
        let token = center.addObserver(of: document, for: .didOpen) { counts.append($0.count) }
        let all = center.addObserver(for: DidOpen.self) { counts.append($0.count * 10) }
        center.post(DidOpen(count: 1), subject: document)
        center.post(DidOpen(count: 2))
        center.removeObserver(all)
        center.post(DidOpen(count: 3), subject: document)
        #expect(counts == [1, 10, 20, 3])
        #expect(DidOpen.name.rawValue.hasSuffix("DidOpen"))
        withExtendedLifetime(token) {}
    }
}
