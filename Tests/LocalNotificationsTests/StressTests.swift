// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Synchronization
import Testing

/// Run under the thread sanitizer by `tools/test-threads`.
@Suite("C9: concurrent use from many threads", .limited)
struct StressTests {
    final class Target: Sendable {
        let count: Counter
        init(_ count: Counter) { self.count = count }
        func handle(_: Notification) { count.value.add(1, ordering: .relaxed) }
    }

    final class Counter: Sendable {
        let value = Atomic(0)
    }

    @Test("C9: concurrent adding, removing and posting works with blocks, methods, handles, queues and contexts")
    func everything() async throws {
        let center = NotificationCenter()
        let thread = LoopThread()
        let operations = OperationQueue()
        let names = (0..<5).map { Notification.Name("\($0)") }
        let senders = (0..<3).map { _ in Sender() }
        // These are there all the time: one call for each post.
        let (steady, posted, calls) = (Counter(), Counter(), Counter())
        center.addObserver(forName: nil, object: nil, queue: nil) { _ in steady.value.add(1, ordering: .relaxed) }

        try await withThrowingTaskGroup(of: Void.self) { group in
            for seed in 0..<6 {
                group.addTask {
                    try await onOwnThread {
                        var generator = SplitMix(state: UInt64(seed))
                        var tokens: [NotificationCenter.Token] = []
                        var observations: [NotificationCenter.Observation] = []
                        var targets: [Target] = []
                        for _ in 0..<1_500 {
                            let name = Bool.random(using: &generator) ? names.randomElement(using: &generator) : nil
                            let sender: Sender? = Bool.random(using: &generator) ? senders[0] : nil
                            switch Int.random(in: 0..<12, using: &generator) {
                            case 0, 1:
                                tokens.append(
                                    center.addObserver(forName: name, object: sender, queue: nil) { _ in
                                        calls.value.add(1, ordering: .relaxed)
                                    })
                            case 2:
                                let target = Target(calls)
                                targets.append(target)
                                center.addObserver(target, method: Target.handle, name: name, object: sender)
                            case 3:
                                observations.append(
                                    center.observe(name, object: sender, context: thread.context) { _ in
                                        calls.value.add(1, ordering: .relaxed)
                                    })
                            case 4 where tokens.count < 20:
                                tokens.append(
                                    center.addObserver(forName: names[0], object: nil, queue: operations) { _ in
                                        calls.value.add(1, ordering: .relaxed)
                                    })
                            case 5:
                                // A target that ends at once, perhaps while another thread calls it.
                                center.addObserver(Target(calls), method: Target.handle, name: name, object: sender)
                            case 6: if !tokens.isEmpty { center.removeObserver(tokens.removeFirst()) }
                            case 7: if !targets.isEmpty { targets.removeFirst() }
                            case 8:
                                if let target = targets.last { center.removeObserver(target, name: name, object: nil) }
                            case 9: if observations.count > 3 { observations.removeFirst() }
                            default:
                                posted.value.add(1, ordering: .relaxed)
                                center.post(
                                    name: names.randomElement(using: &generator)!,
                                    object: senders.randomElement(using: &generator)!)
                            }
                            if tokens.count > 30 { center.removeObserver(tokens.removeFirst()) }
                        }
                        for token in tokens { center.removeObserver(token) }
                        for target in targets { center.removeObserver(target) }
                    }
                }
            }
            try await group.waitForAll()
        }
        try await onOwnThread { try thread.stop() }
        #expect(steady.value.load(ordering: .relaxed) == posted.value.load(ordering: .relaxed))
        #expect(calls.value.load(ordering: .relaxed) > 0)
        for name in names { center.post(name: name, object: senders[0]) }
        #expect(center.observerCount == 1)
    }

    @Test("C9, Q: a queue used by many threads posts the notifications of each thread in their order")
    func queues() async throws {
        let center = NotificationCenter()
        let queue = NotificationQueue(notificationCenter: center)
        let (threads, count) = (4, 1_000)
        let received = (0..<threads).map { _ in Recorder<Int>() }
        center.addObserver(forName: .a, object: nil, queue: nil) { notification in
            received[notification.userInfo!["thread"] as! Int].add(notification.userInfo!["n"] as! Int)
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for thread in 0..<threads {
                group.addTask {
                    try await onOwnThread {
                        for n in 0..<count {
                            queue.enqueue(
                                Notification(name: .a, userInfo: ["thread": thread, "n": n]), postingStyle: .asap,
                                coalesceMask: .none)
                            // Coalesced with what the others have of it, on whatever thread.
                            queue.enqueue(Notification(name: .b), postingStyle: .whenIdle)
                            if n % 10 == 0 { MainContext.current.iterate(mayBlock: false) }
                        }
                        for _ in 0..<2 {
                            MainContext.current.settle()
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        for list in received { #expect(list.all == Array(0..<count)) }
    }

    @Test("M3, T1: no delivery is lost when modes change while other threads post")
    func modes() async throws {
        let thread = LoopThread()
        let center = NotificationCenter()
        let (common, own) = (Counter(), Counter())
        center.addObserver(forName: .a, object: nil, context: thread.context) { _ in
            common.value.add(1, ordering: .relaxed)
        }
        center.addObserver(forName: .a, object: nil, context: thread.context, modes: ["own"]) { _ in
            own.value.add(1, ordering: .relaxed)
        }
        let count = 3_000
        async let modes: Void = onOwnThread {
            for _ in 0..<500 {
                thread.context.pushMode("own")
                thread.context.popMode("own")
            }
        }
        try await onOwnThread { for _ in 0..<count { center.post(name: .a, object: nil) } }
        try await modes
        thread.context.pushMode("own")
        try await onOwnThread {
            try eventually("what is for the mode", comesTo: count) { own.value.load(ordering: .relaxed) }
            thread.context.popMode("own")
            try eventually("what is common", comesTo: count) { common.value.load(ordering: .relaxed) }
            try thread.stop()
        }
        #expect(own.value.load(ordering: .relaxed) == count)
        #expect(common.value.load(ordering: .relaxed) == count)
    }
}
