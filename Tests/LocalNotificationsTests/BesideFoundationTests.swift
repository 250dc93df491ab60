// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Testing

private typealias Ours = LocalNotifications.NotificationCenter
private typealias Theirs = Foundation.NotificationCenter

/// What both centers have.
private protocol Center: AnyObject, Sendable {
    init()
    func hear(
        _ name: Notification.Name?, _ sender: Any?, _ queue: OperationQueue?,
        _ block: @escaping @Sendable (Notification) -> Void
    ) -> Handle
    func forget(_ token: Handle)
    func tell(_ name: Notification.Name, _ sender: Any?)
}

extension Center {
    func hear(_ name: Notification.Name?, _ sender: Any? = nil, _ block: @escaping @Sendable () -> Void) -> Handle {
        hear(name, sender, nil) { _ in block() }
    }

    func tell(_ name: Notification.Name) { tell(name, nil) }
}

private struct Handle: @unchecked Sendable {
    // Sendable: it is only handed back.
    let value: any NSObjectProtocol
}

extension Ours: Center {
    fileprivate func hear(
        _ name: Notification.Name?, _ sender: Any?, _ queue: OperationQueue?,
        _ block: @escaping @Sendable (Notification) -> Void
    ) -> Handle {
        Handle(value: addObserver(forName: name, object: sender, queue: queue, using: block))
    }
    fileprivate func forget(_ token: Handle) { removeObserver(token.value) }
    fileprivate func tell(_ name: Notification.Name, _ sender: Any?) { post(name: name, object: sender) }
}

extension Theirs: Center {
    fileprivate func hear(
        _ name: Notification.Name?, _ sender: Any?, _ queue: OperationQueue?,
        _ block: @escaping @Sendable (Notification) -> Void
    ) -> Handle {
        Handle(value: addObserver(forName: name, object: sender, queue: queue, using: block))
    }
    fileprivate func forget(_ token: Handle) { removeObserver(token.value) }
    fileprivate func tell(_ name: Notification.Name, _ sender: Any?) { post(name: name, object: sender) }
}

private final class Document: Sendable {}

#if compiler(>=6.2)
    private struct Told: Foundation.NotificationCenter.AsyncMessage {
        typealias Subject = Document
    }
#endif
private struct OurTold: LocalNotifications.NotificationCenter.AsyncMessage {
    typealias Subject = Document
}

#if compiler(>=6.3) && !compiler(>=6.4)
    private let isMeasured = true
#else
    private let isMeasured = false
#endif

/// What `DifferencesFromFoundation` says of Foundation on Linux, measured: each does the same at both centers, or both
/// queues. Another Foundation may do otherwise; then the page is to be measured anew.
@Suite(
    "Comparison with Foundation's center and queue", .limited, .serialized,
    .enabled(if: isMeasured, "the page says what the Foundation of Swift 6.3 does"))
struct BesideFoundationTests {
    @Test("The default centers of Foundation and Carillon do not receive each other's posts")
    func defaultCenters() {
        let name = Notification.Name("of \(UUID())")
        let calls = Recorder<String>()
        let tokens = (
            Ours.default.hear(name) { calls.add("ours") }, Theirs.default.hear(name) { calls.add("theirs") }
        )
        Theirs.default.tell(name)
        Ours.default.tell(name)
        #expect(calls.all == ["theirs", "ours"])
        Ours.default.forget(tokens.0)
        Theirs.default.forget(tokens.1)
    }

    @Test("Carillon calls observers in order of registration, and Foundation in another order")
    func order() {
        func called(by center: any Center) -> [Int] {
            let calls = Recorder<Int>()
            let tokens = (0..<100).map { number in center.hear(.a) { calls.add(number) } }
            center.tell(.a)
            withExtendedLifetime(tokens) {}
            return calls.all
        }
        let theirs = called(by: Theirs())
        #expect(called(by: Ours()) == Array(0..<100))
        #expect(theirs.sorted() == Array(0..<100) && theirs != Array(0..<100))
    }

    @Test("Equal value senders always match in Carillon, and mostly do not match in Foundation")
    func equalValues() {
        /// How many of a hundred posts from an equal value, and from others, are heard.
        func heard(by center: any Center) -> [Int] {
            let calls = Recorder<Int>()
            let token = center.hear(.a, ["sen", "der"].joined()) { calls.add(0) }
            for _ in 0..<100 { center.tell(.a, ["se", "nder"].joined()) }
            let equal = calls.count
            for number in 0..<100 { center.tell(.a, "\(number)") }
            withExtendedLifetime(token) {}
            return [equal, calls.count - equal]
        }
        let theirs = heard(by: Theirs())
        #expect(heard(by: Ours()) == [100, 0])
        // By the address of a box that is made for each post; one may be where another was.
        #expect(theirs[0] < 50)
    }

    @Test("A new sender at the address of a released one matches its observers in Foundation, and never in Carillon")
    func addressReuse() throws {
        /// How many posts of new senders are heard by observers of those that are over.
        func heard(by center: any Center) -> Int {
            let calls = Recorder<Int>()
            var tokens: [Handle] = []
            for _ in 0..<50 {
                do {
                    let sender = Document()
                    tokens.append(center.hear(.a, sender) { calls.add(0) })
                }
                let new = (0..<200).map { _ in Document() }
                for sender in new { center.tell(.a, sender) }
            }
            return calls.count
        }
        #expect(heard(by: Ours()) == 0)
        try eventually("an address is used again") { heard(by: Theirs()) > 0 }
    }

    @Test("Foundation accepts an empty name")
    func emptyName() {
        let center = Theirs()
        let calls = Recorder<String>()
        let token = center.hear("") { calls.add("heard") }
        center.tell("")
        #expect(calls.all == ["heard"])
        withExtendedLifetime(token) {}
        // Ours refuses it: `Center.emptyName`.
    }

    @Test("A second removal of a token removes a newer observer in Foundation, and none in Carillon")
    func removedTwice() {
        func strangers(of center: any Center) -> Int {
            let calls = Recorder<Int>()
            let token = center.hear(.a) {}
            center.forget(token)
            let stranger = center.hear(.a) { calls.add(0) }
            center.forget(token)
            center.tell(.a)
            withExtendedLifetime(stranger) {}
            return calls.count
        }
        #expect(strangers(of: Ours()) == 1)
        #expect(strangers(of: Theirs()) == 0)
    }

    @Test("Observers that are removed during a post are still called by Foundation, and not by Carillon")
    func removedDuringPost() {
        func called(by center: any Center) -> Int {
            let calls = Recorder<Int>()
            let tokens = Recorder<Handle>()
            for _ in 0..<3 {
                tokens.add(
                    center.hear(.a) {
                        calls.add(0)
                        for token in tokens.all { center.forget(token) }
                    })
            }
            center.tell(.a)
            return calls.count
        }
        #expect(called(by: Ours()) == 1)
        #expect(called(by: Theirs()) == 3)
    }

    @Test("Foundation's post to an observer's queue waits for other work in the queue")
    func queueOfObserver() async throws {
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 2
        let calls = Recorder<String>()
        let (doorbell, returned) = (Doorbell(), Doorbell())
        queue.addOperation {
            try? doorbell.wait("a moment after the block")
            calls.add("other work")
        }
        let center = Theirs()
        let token = center.hear(.a, nil, queue) { _ in calls.add("block") }
        Thread {
            center.tell(.a)
            calls.add("returned")
            returned.ring()
        }.start()
        try await onOwnThread { try eventually("the block is done") { calls.count == 1 && queue.operationCount == 1 } }
        try await letPassInTask(.milliseconds(200), because: "a post that did not wait for the other work would return")
        doorbell.ring()
        try await onOwnThread { try returned.wait("the end of the post") }
        #expect(calls.all == ["block", "other work", "returned"])
        withExtendedLifetime(token) {}
        // Ours returns: `OperationQueue.ownOperation`.
    }

    @Test("A chain of posts from a queue to another and back deadlocks in Foundation")
    func crossingQueues() async {
        // In a process of its own: what waits there for ever keeps threads of libdispatch, of which there are few.
        await #expect(processExitsWith: .success) {
            let calls = Recorder<String>()
            let doorbell = Doorbell()
            let center = Theirs()
            let (one, two) = (OperationQueue(), OperationQueue())
            for queue in [one, two] { queue.maxConcurrentOperationCount = 1 }
            let tokens = [
                center.hear(.a, nil, two) { _ in
                    calls.add("q2")
                    doorbell.ring()
                    center.tell(.b)
                },
                center.hear(.b, nil, one) { _ in calls.add("q again") },
            ]
            one.addOperation { center.tell(.a) }
            try await onOwnThread { try doorbell.wait("the block on q2") }
            try await letPassInTask(.milliseconds(500), because: "a queue that went on would be there")
            #expect(calls.all == ["q2"])
            withExtendedLifetime(tokens) {}
        }
        // Ours goes on: `OperationQueue.thereAndBack`.
    }

    // MARK: Messages

    @Test("A message with an observer of all notifications ends the process in Foundation, and arrives in Carillon")
    func messageToObserverOfAll() async {
        #if compiler(>=6.2)
            await #expect(processExitsWith: .failure) {
                let center = Theirs()
                let token = center.addObserver(forName: nil, object: nil, queue: nil) { _ in }
                center.post(Told())
                withExtendedLifetime(token) {}
            }
        #endif
        let calls = Recorder<String>()
        let center = Ours()
        let token = center.hear(nil) { calls.add("heard") }
        center.post(OurTold())
        #expect(calls.all == ["heard"])
        withExtendedLifetime(token) {}
    }

    // MARK: The queue

    private func turn() { _ = RunLoop.current.run(mode: .default, before: Date()) }

    /// A queue of Foundation's, and the numbers that it posts.
    private func theirQueue() -> (queue: Foundation.NotificationQueue, posts: Recorder<Int>, keep: [Any]) {
        let center = Theirs()
        let posts = Recorder<Int>()
        let token = center.hear(nil, nil, nil) { posts.add($0.userInfo?["n"] as? Int ?? -1) }
        // Without a timer or an input the loop does not turn at all.
        let timer = Timer(timeInterval: 3_600, repeats: false) { _ in }
        RunLoop.current.add(timer, forMode: .default)
        return (Foundation.NotificationQueue(notificationCenter: center), posts, [center, token, timer])
    }

    @Test("Foundation's queue posts in the run loop, and not in a GLib main context")
    func loops() async throws {
        try await onOwnThread { [self] in
            let (queue, posts, keep) = theirQueue()
            let context = MainContext()
            context.asThreadDefault {
                queue.enqueue(Notification(name: .a, userInfo: ["n": 1]), postingStyle: .asap)
                for _ in 0..<100 { context.iterate(mayBlock: false) }
            }
            #expect(posts.all == [])
            try eventually("a post") {
                turn()
                return posts.count >= 1
            }
            #expect(posts.all == [1])
            withExtendedLifetime(keep) {}
        }
    }

    @Test("Foundation posts all whenIdle notifications at once, the last first, and Carillon one at a time")
    func idle() async throws {
        try await onOwnThread { [self] in
            let (queue, posts, keep) = theirQueue()
            for number in 0..<3 {
                queue.enqueue(
                    Notification(name: .a, userInfo: ["n": number]), postingStyle: .whenIdle, coalesceMask: .none,
                    forModes: nil)
            }
            try eventually("a post") {
                turn()
                return posts.count >= 1
            }
            // All of them, and the last first.
            #expect(posts.all == [2, 1, 0])
            withExtendedLifetime(keep) {}

            let center = Ours()
            let ourPosts = Recorder<Int>()
            let token = center.hear(nil, nil, nil) { _ in ourPosts.add(0) }
            let ourQueue = NotificationQueue(notificationCenter: center)
            let context = MainContext()
            try context.asThreadDefault {
                for _ in 0..<3 {
                    ourQueue.enqueue(Notification(name: .a), postingStyle: .whenIdle, coalesceMask: .none)
                }
                try context.run("a post") { ourPosts.count >= 1 }
            }
            #expect(ourPosts.count == 1)
            withExtendedLifetime(token) {}
        }
    }

    @Test("Foundation's queue without a running loop is unbounded, and posts all of 131,077 notifications")
    func bound() async throws {
        try await onOwnThread { [self] in
            let (queue, posts, keep) = theirQueue()
            let count = 131_072 + 5
            for number in 0..<count {
                queue.enqueue(
                    Notification(name: .a, userInfo: ["n": number]), postingStyle: .asap, coalesceMask: .none,
                    forModes: nil)
            }
            try eventually("all posts", progress: { posts.count }) {
                turn()
                return posts.count >= count
            }
            #expect(posts.count == count)
            withExtendedLifetime(keep) {}
        }
    }

    @Test("Notifications with equal string senders do not coalesce in Foundation")
    func coalescing() async throws {
        try await onOwnThread { [self] in
            let (queue, posts, keep) = theirQueue()
            for number in 0..<3 {
                queue.enqueue(
                    Notification(name: .a, object: ["sen", "der"].joined(), userInfo: ["n": number]),
                    postingStyle: .asap, coalesceMask: .onSender, forModes: nil)
            }
            try eventually("three posts") {
                turn()
                return posts.count >= 3
            }
            #expect(posts.count == 3)
            withExtendedLifetime(keep) {}
        }
        // Ours: `Queue.stringSenders`.
    }
}
