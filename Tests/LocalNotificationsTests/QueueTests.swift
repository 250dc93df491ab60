// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Synchronization
import Testing

/// A context that is the test's thread's own while the test runs, and a queue that posts into a list.
private final class Bench: Sendable {
    let context: MainContext
    let center = NotificationCenter()
    let posts = Recorder<String>()
    let queue: NotificationQueue

    init(_ context: MainContext = MainContext()) {
        self.context = context
        queue = NotificationQueue(notificationCenter: center)
        center.addObserver(forName: nil, object: nil, queue: nil) { [posts] notification in
            let number = notification.userInfo?["n"] as? Int
            posts.add(notification.name.rawValue + (number.map { " \($0)" } ?? ""))
        }
    }

    func enqueue(
        _ name: Notification.Name, _ style: NotificationQueue.PostingStyle, object: Any? = nil, n: Int? = nil,
        mask: NotificationQueue.NotificationCoalescing = .none, modes: [RunLoopMode]? = nil
    ) {
        queue.enqueue(
            Notification(name: name, object: object, userInfo: n.map { ["n": $0] }), postingStyle: style,
            coalesceMask: mask, forModes: modes)
    }

    /// Dispatches until nothing is ready.
    func settle() {
        context.settle()
    }
}

@Suite("Q: the notification queue", .limited)
struct QueueTests {
    private func bench(on context: MainContext = MainContext(), _ body: (Bench) throws -> Void) rethrows {
        let bench = Bench(context)
        try bench.context.asThreadDefault { try body(bench) }
    }

    // MARK: Q1, Q2

    @Test(
        "Q1: notifications are posted first in, first out", arguments: [NotificationQueue.PostingStyle.asap, .whenIdle])
    func fifo(style: NotificationQueue.PostingStyle) {
        bench { bench in
            for n in 1...100 { bench.enqueue(n % 3 == 0 ? .a : .b, style, n: n) }
            #expect(bench.posts.all == [])
            bench.settle()
            #expect(bench.posts.all == (1...100).map { "\($0 % 3 == 0 ? "A" : "B") \($0)" })
        }
    }

    @Test("Q1: notifications for different modes are posted first in, first out")
    func fifoAcrossModes() {
        bench { bench in
            for n in 1...30 {
                bench.enqueue(.a, .asap, n: n, modes: [nil, [.common], [.default, .modalPanel]][n % 3])
            }
            bench.settle()
            #expect(bench.posts.all == (1...30).map { "A \($0)" })
        }
    }

    @Test("Q2: now notifications are posted first, then asap, then whenIdle")
    func asapBeforeIdle() {
        bench { bench in
            bench.enqueue(.a, .whenIdle)
            bench.enqueue(.b, .asap)
            bench.enqueue("C", .now)
            #expect(bench.posts.all == ["C"])
            bench.settle()
            #expect(bench.posts.all == ["C", "B", "A"])
        }
    }

    @Test("Q2: asap posts at the end of the iteration, after its other due sources and before those of the next")
    func endOfIteration() {
        bench { bench in
            let events = bench.posts
            let next = SignalledSource(on: bench.context, priority: .high) { events.add("next iteration") }
            let first = SignalledSource(on: bench.context, priority: .default) {
                bench.enqueue(.a, .asap)
                events.add("first")
                next.signal()
            }
            let second = SignalledSource(on: bench.context, priority: .default) { events.add("second") }
            first.signal()
            second.signal()
            bench.settle()
            #expect(events.all == ["first", "second", "A", "next iteration"])
        }
    }

    @Test("Q2: whenIdle posts after all due timers and sources, also between two whenIdle notifications")
    func idle() {
        bench { bench in
            let events = bench.posts
            let low = SignalledSource(on: bench.context, priority: EventSource.Priority(rawValue: 5_000)) {
                events.add("low")
            }
            bench.center.addObserver(forName: .a, object: nil, queue: nil) { _ in low.signal() }
            low.signal()
            let timer = EventSource.timer(milliseconds: 0, on: bench.context) {
                events.add("timer")
                return .remove
            }
            bench.enqueue(.a, .whenIdle)
            bench.enqueue(.b, .whenIdle)
            bench.settle()
            #expect(events.all == ["timer", "low", "A", "low", "B"])
            withExtendedLifetime(timer) {}
        }
    }

    @Test("Q2: a loop that is about to quit posts no whenIdle notification, not even the rest of several")
    func quitting() throws {
        try bench { bench in
            let loop = EventLoop(context: bench.context)
            bench.enqueue(.a, .whenIdle)
            let quitter = SignalledSource(on: bench.context, priority: EventSource.Priority(rawValue: 300)) {
                loop.quit()
            }
            quitter.signal()
            try loop.run(on: bench.context, waitingFor: "quit, from a source")
            #expect(bench.posts.all == [])

            bench.center.addObserver(forName: .a, object: nil, queue: nil) { _ in loop.quit() }
            bench.enqueue(.b, .whenIdle)
            // Another queue of the same context stops as well.
            let other = NotificationQueue(notificationCenter: bench.center)
            other.enqueue(Notification(name: "C"), postingStyle: .whenIdle)
            try loop.run(on: bench.context, waitingFor: "quit, from an observer")
            #expect(bench.posts.all == ["A"])
            bench.settle()
            #expect(bench.posts.all == ["A", "B", "C"])
        }
    }

    // MARK: Q3

    @Test("Q3: a notification replaces those with its name, sender or both, goes to the tail and keeps its userInfo")
    func coalescing() {
        for (mask, expected) in [
            (.none, ["A 1", "A 2", "B 3", "A 4"]), (.onName, ["B 3", "A 4"]), (.onSender, ["A 2", "A 4"]),
            ([.onName, .onSender], ["A 2", "B 3", "A 4"]),
        ] as [(NotificationQueue.NotificationCoalescing, [String])] {
            bench { bench in
                let (one, two) = (Sender(), Sender())
                bench.enqueue(.a, .asap, object: one, n: 1)
                bench.enqueue(.a, .asap, object: two, n: 2)
                bench.enqueue(.b, .asap, object: one, n: 3)
                bench.enqueue(.a, .asap, object: one, n: 4, mask: mask)
                bench.settle()
                #expect(bench.posts.all == expected, "\(mask)")
            }
        }
    }

    @Test("Q3: notifications with equal string senders coalesce")
    func stringSenders() {
        bench { bench in
            bench.enqueue(.a, .asap, object: "sender", n: 1)
            bench.enqueue(.a, .asap, object: nil, n: 2)
            bench.enqueue(.a, .asap, object: ["sen", "der"].joined(), n: 3, mask: [.onName, .onSender])
            bench.enqueue(.a, .asap, object: nil, n: 4, mask: .onSender)
            bench.settle()
            #expect(bench.posts.all == ["A 3", "A 4"])
        }
    }

    @Test("Q3: a coalesced notification takes the more urgent style and the union of the modes")
    func styleAndModes() {
        bench { bench in
            bench.enqueue(.a, .asap, n: 1)
            bench.enqueue(.a, .whenIdle, n: 2, mask: .onName)
            bench.enqueue(.b, .whenIdle, n: 3)
            bench.context.iterate(mayBlock: false)
            #expect(bench.posts.all == ["A 2"])
            bench.settle()
            #expect(bench.posts.all == ["A 2", "B 3"])

            bench.enqueue(.a, .asap, n: 4, modes: ["own"])
            bench.enqueue(.a, .asap, n: 5, mask: .onName, modes: [.modalPanel])
            bench.context.pushMode("own")
            bench.settle()
            bench.context.popMode("own")
            #expect(bench.posts.all == ["A 2", "B 3", "A 5"])
        }
    }

    @Test("Q3: a now notification first replaces similar ones, and is then posted")
    func nowCoalesces() {
        bench { bench in
            bench.enqueue(.a, .asap, n: 1)
            bench.enqueue(.a, .whenIdle, n: 2)
            bench.enqueue(.a, .now, n: 3, mask: .onName)
            #expect(bench.posts.all == ["A 3"])
            bench.settle()
            #expect(bench.posts.all == ["A 3"])
        }
    }

    @Test("Q3: enqueue with a style alone coalesces on name and sender")
    func defaultMask() {
        bench { bench in
            for n in 1...10 { bench.queue.enqueue(Notification(name: .a, userInfo: ["n": n]), postingStyle: .asap) }
            bench.queue.enqueue(Notification(name: .a, object: "other"), postingStyle: .asap)
            bench.settle()
            #expect(bench.posts.all == ["A 10", "A"])
        }
    }

    @Test("Q3: dequeueNotifications removes without posting")
    func dequeue() {
        bench { bench in
            bench.enqueue(.a, .asap, object: "x", n: 1)
            bench.enqueue(.a, .whenIdle, object: "y", n: 2)
            bench.enqueue(.b, .asap, object: "x", n: 3)
            bench.queue.dequeueNotifications(matching: Notification(name: .a), coalesceMask: .none)
            bench.queue.dequeueNotifications(
                matching: Notification(name: .a, object: "x"), coalesceMask: [.onName, .onSender])
            bench.settle()
            #expect(bench.posts.all == ["B 3", "A 2"])
            bench.enqueue(.a, .asap)
            bench.queue.dequeueNotifications(matching: Notification(name: .a), coalesceMask: .onName)
            bench.settle()
            #expect(bench.posts.count == 2)
        }
    }

    @Test("Q3: a hundred thousand coalescing notifications are posted as one")
    func many() {
        bench { bench in
            for n in 1...100_000 { bench.enqueue(.a, .whenIdle, n: n, mask: .onName) }
            bench.settle()
            #expect(bench.posts.all == ["A 100000"])
        }
    }

    // MARK: Q4

    @Test(
        "A notification for a custom mode is posted when the loop runs in that mode, and not before (Q4)",
        arguments: [NotificationQueue.PostingStyle.asap, .whenIdle])
    func customModes(style: NotificationQueue.PostingStyle) {
        bench { bench in
            bench.enqueue(.a, style, modes: ["own"])
            bench.settle()
            #expect(bench.posts.all == [])
            bench.context.run(mode: "own") { bench.posts.count == 1 }
            #expect(bench.posts.all == ["A"])
        }
    }

    @Test("Q4: a notification without modes is posted in the default mode only")
    func defaultMode() {
        bench { bench in
            bench.context.pushMode(.modalPanel)
            bench.enqueue(.a, .asap)
            bench.enqueue(.a, .whenIdle)
            bench.enqueue(.b, .asap, modes: [.common])
            bench.settle()
            #expect(bench.posts.all == ["B"])
            bench.context.popMode(.modalPanel)
            bench.settle()
            #expect(bench.posts.all == ["B", "A", "A"])
        }
    }

    @Test("Q4: a now notification for another mode is not posted, and similar waiting notifications are kept")
    func nowInAnotherMode() {
        bench { bench in
            bench.enqueue(.a, .asap, n: 1)
            bench.context.pushMode(.eventTracking)
            bench.enqueue(.a, .now, n: 2, mask: .onName)
            #expect(bench.posts.all == [])
            bench.enqueue(.a, .now, n: 3, modes: [.common])
            #expect(bench.posts.all == ["A 3"])
            bench.context.popMode(.eventTracking)
            bench.settle()
            #expect(bench.posts.all == ["A 3", "A 1"])
        }
    }

    @Test("Q4: an observer that enters a mode delays notifications for other modes until the mode is left")
    func modeEnteredDuringPass() {
        bench { bench in
            bench.center.addObserver(forName: .a, object: nil, queue: nil) { [context = bench.context] _ in
                context.pushMode("own")
            }
            bench.enqueue(.a, .asap)
            bench.enqueue(.b, .asap)
            bench.settle()
            #expect(bench.posts.all == ["A"])
            bench.context.popMode("own")
            bench.settle()
            #expect(bench.posts.all == ["A", "B"])
        }
    }

    // MARK: Q5

    @Test("Q5: an observer can enqueue and dequeue during a pass, and its notifications belong to the next pass")
    func enqueueWhileDraining() {
        bench { bench in
            let queue = bench.queue
            bench.center.addObserver(forName: .a, object: nil, queue: nil) { notification in
                let number = notification.userInfo?["n"] as! Int
                guard number < 3 else { return }
                queue.enqueue(
                    Notification(name: .a, userInfo: ["n": number + 1]), postingStyle: .asap, coalesceMask: .onName)
                queue.dequeueNotifications(matching: Notification(name: "C"), coalesceMask: .onName)
            }
            bench.enqueue(.a, .asap, n: 1)
            bench.enqueue("C", .asap)
            bench.enqueue(.b, .asap)
            bench.settle()
            bench.settle()
            #expect(bench.posts.all == ["A 1", "B", "A 2", "A 3"])
        }
    }

    @Test("Q5, M3: an observer that always enqueues again does not starve other sources")
    func neverStarves() {
        // A clock that stands: no rest ends before the others had their turn because the machine was busy.
        bench(on: MainContext(cycleClock: { 0 })) { bench in
            let queue = bench.queue
            let idles = Atomic(0)
            bench.center.addObserver(forName: .a, object: nil, queue: nil) { _ in
                queue.enqueue(Notification(name: .a), postingStyle: .asap)
            }
            bench.enqueue(.a, .asap)
            let idle = EventSource.idle(on: bench.context, priority: EventSource.Priority(rawValue: 300)) {
                idles.add(1, ordering: .relaxed)
                return .keep
            }
            for _ in 0..<100 { bench.context.iterate(mayBlock: false) }
            #expect(idles.load(ordering: .relaxed) >= 40)
            #expect(bench.posts.count >= 40)
            withExtendedLifetime(idle) {}
        }
    }

    @Test("Q5: a nested loop in an observer posts notifications for its mode, and then the pass continues")
    func nestedLoop() {
        bench { bench in
            let (context, posts) = (bench.context, bench.posts)
            bench.center.addObserver(forName: .a, object: nil, queue: nil) { _ in
                context.run(mode: .modalPanel) { posts.count == 2 }
                posts.add("end of A")
            }
            bench.enqueue(.a, .asap)
            bench.enqueue(.b, .asap)
            bench.enqueue("C", .asap, modes: [.common])
            bench.settle()
            #expect(posts.all == ["A", "C", "end of A", "B"])
        }
    }

    // MARK: Q1, Q6

    @Test("Q6: ten queues of one thread post all of their notifications")
    func manyQueues() {
        bench { bench in
            let queues = (0..<10).map { _ in NotificationQueue(notificationCenter: bench.center) }
            for (n, queue) in queues.enumerated() {
                queue.enqueue(Notification(name: .a, userInfo: ["n": n]), postingStyle: .asap)
                queue.enqueue(Notification(name: .b, userInfo: ["n": n]), postingStyle: .whenIdle)
            }
            bench.settle()
            #expect(bench.posts.all == (0..<10).map { "A \($0)" } + (0..<10).map { "B \($0)" })
        }
    }

    @Test("Q6: a queue without references is freed with its waiting notifications")
    func freed() {
        bench { bench in
            weak var observed: NotificationQueue?
            do {
                let queue = NotificationQueue(notificationCenter: bench.center)
                observed = queue
                queue.enqueue(Notification(name: .a), postingStyle: .asap)
            }
            #expect(observed == nil)
            bench.settle()
            #expect(bench.posts.all == [])
        }
    }

    @Test("Q1, Q6: every thread has a default queue, which is freed at the end of the thread")
    func perThread() async throws {
        final class Weak: Sendable {
            let queue = Locked<Reference>(Reference())
            struct Reference { weak var queue: NotificationQueue? }
        }
        let (ofThread, ended) = (Weak(), Doorbell())
        let mine = NotificationQueue.default
        #expect(mine === NotificationQueue.default)
        Thread {
            ofThread.queue.withLock { $0.queue = NotificationQueue.default }
            let isItsOwn = ofThread.queue.withLock { $0.queue } === NotificationQueue.default
            NotificationQueue.default.enqueue(Notification(name: .a), postingStyle: .asap)
            if isItsOwn && ofThread.queue.withLock({ $0.queue }) !== mine { ended.ring() }
        }.start()
        try await onOwnThread {
            try ended.wait("the thread")
            try eventually("the end of the thread's queue") { ofThread.queue.withLock { $0.queue } == nil }
        }
    }

    @Test("Q1: a queue posts each notification on the thread that enqueued it, in the thread's context")
    func threads() async throws {
        let center = NotificationCenter()
        let queue = NotificationQueue(notificationCenter: center)
        let threads = Recorder<Bool>()
        center.addObserver(forName: nil, object: nil, queue: nil) { notification in
            threads.add(notification.object as AnyObject === Thread.current)
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<4 {
                group.addTask {
                    try await onOwnThread {
                        queue.enqueue(
                            Notification(name: .a, object: Thread.current), postingStyle: .asap, coalesceMask: .none)
                        // The thread's own: it pushed no other.
                        MainContext.current.settle()
                    }
                }
            }
            try await group.waitForAll()
        }
        #expect(threads.all == [true, true, true, true])
    }

    @Test("Q1: notifications that wait for a context are released when the context ends")
    func contextEnds() {
        let queue = NotificationQueue(notificationCenter: NotificationCenter())
        weak var waiting: Sender?
        do {
            let sender = Sender()
            waiting = sender
            MainContext().asThreadDefault {
                queue.enqueue(Notification(name: .a, object: sender), postingStyle: .asap)
            }
        }
        #expect(waiting == nil)
    }

    @Test("Q1: a queue can post to Foundation's center")
    func foundation() {
        bench { bench in
            let center = Foundation.NotificationCenter()
            let posts = bench.posts
            let token = center.addObserver(forName: .a, object: nil, queue: nil) { _ in posts.add("Foundation's") }
            let queue = NotificationQueue(notificationCenter: center)
            queue.enqueue(Notification(name: .a), postingStyle: .whenIdle)
            queue.enqueue(Notification(name: .a), postingStyle: .now)
            bench.settle()
            #expect(posts.all == ["Foundation's"])
            center.removeObserver(token)
        }
    }
}

extension Notification.Name: @retroactive ExpressibleByStringLiteral {
    public init(stringLiteral name: String) { self.init(name) }
}
