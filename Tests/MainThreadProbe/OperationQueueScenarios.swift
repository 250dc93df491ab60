// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestSupport
import CarillonThreadDelivery
import Dispatch
import Foundation
import LocalNotifications

/// C4 with the main queue among the queues.
extension MainThreadProbe {
    private static func serialQueue() -> OperationQueue {
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 1
        return queue
    }

    /// The main thread posts to a queue, which posts to another, which posts to the main queue: the main thread, which
    /// waits, runs the last.
    static func chainToMain() throws {
        let center = NotificationCenter()
        let events = Events()
        let (one, two) = (serialQueue(), serialQueue())
        center.addObserver(forName: Notification.Name("one"), object: nil, queue: one) { _ in
            events.add(Thread.isMainThread ? "one, wrong thread" : "one")
            center.post(name: Notification.Name("two"), object: nil)
        }
        center.addObserver(forName: Notification.Name("two"), object: nil, queue: two) { _ in
            events.add(Thread.isMainThread ? "two, wrong thread" : "two")
            center.post(name: Notification.Name("main"), object: nil)
        }
        center.addObserver(forName: Notification.Name("main"), object: nil, queue: .main) { _ in
            events.add(Thread.isMainThread ? "main" : "main, wrong thread")
        }
        for _ in 0..<100 { center.post(name: Notification.Name("one"), object: nil) }
        let expected = (0..<100).flatMap { _ in ["one", "two", "main"] }
        try require(events.all == expected, "\(events.all)")
    }

    /// The main thread posts to a queue while that posts to the main queue, under a loop of its own and without.
    static func crossingMain() throws {
        let center = NotificationCenter()
        let queue = serialQueue()
        let events = Events()
        center.addObserver(forName: Notification.Name("queue"), object: nil, queue: queue) { _ in
            events.add(OperationQueue.current === queue ? "queue" : "queue, elsewhere")
        }
        center.addObserver(forName: Notification.Name("main"), object: nil, queue: .main) { _ in
            events.add(Thread.isMainThread ? "main" : "main, wrong thread")
        }
        let rounds = 400
        for round in 0..<rounds {
            let isThere = DispatchSemaphore(value: 0)
            queue.addOperation {
                isThere.signal()
                center.post(name: Notification.Name("main"), object: nil)
            }
            isThere.wait()
            // In every other round the queue's post is surely there first.
            if round % 2 == 0 { letPass(.microseconds(50), because: "rounds begin at different moments") }
            center.post(name: Notification.Name("queue"), object: nil)
            try run("both posts") { events.count == 2 * (round + 1) }
        }
        let all = events.all
        try require(all.count { $0 == "main" } == rounds && all.count { $0 == "queue" } == rounds, "\(Set(all))")
    }

    /// Q2, M3: the blocks of the main queue, each of which enqueues the next, leave drawing its turns, and what waits for
    /// idleness comes behind the last of them.
    static func idleLast() throws {
        MainQueueSource.install()
        let center = NotificationCenter()
        let events = Events()
        center.addObserver(forName: Notification.Name("idle"), object: nil, queue: nil) { _ in events.add("idle") }
        @Sendable func block(_ left: Int) {
            let end = DispatchTime.now().uptimeNanoseconds + 300_000
            while DispatchTime.now().uptimeNanoseconds < end {}
            if left > 0 { DispatchQueue.main.async { block(left - 1) } } else { events.add("last block") }
        }
        DispatchQueue.main.async { block(300) }
        let queue = NotificationQueue(notificationCenter: center)
        queue.enqueue(Notification(name: Notification.Name("idle")), postingStyle: .whenIdle)
        var frames = 0
        let frame = EventSource.idle(on: .default, priority: EventSource.Priority(rawValue: 120)) {
            if events.count == 0 { frames += 1 }
            return events.count == 0 ? .keep : .remove
        }
        let timer = EventSource.timer(milliseconds: 3, on: .default) { .keep }
        try run("idleness") { events.count == 2 }
        try require(events.all == ["last block", "idle"], "\(events.all)")
        // 90 ms of blocks, in which a frame is due every 16.
        try require(frames >= 5, "\(frames) frames")
        withExtendedLifetime((frame, timer)) {}
    }
}
