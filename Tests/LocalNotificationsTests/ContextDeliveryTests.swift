// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonThreadDelivery
import Foundation
import LocalNotifications
import Synchronization
import Testing

/// A thread that runs a context of its own.
final class LoopThread: Sendable {
    let context = MainContext()
    private let iterations = Atomic(0)
    private let isOver = Atomic(false)
    private let ended = Doorbell()

    init() {
        Thread { [self] in
            context.asThreadDefault {
                while !isOver.load(ordering: .acquiring) {
                    iterations.add(1, ordering: .acquiringAndReleasing)
                    context.iterate(mayBlock: true)
                }
            }
            ended.ring()
        }.start()
    }

    /// Waits until the loop has gone to sleep over what there is.
    func waitUntilAsleep() throws {
        var last = -1
        try eventually("a loop that sleeps", every: .milliseconds(100)) {
            defer { last = iterations.load(ordering: .acquiring) }
            return last == iterations.load(ordering: .acquiring)
        }
    }

    /// Waits for the thread's end.
    func stop() throws {
        isOver.store(true, ordering: .releasing)
        context.wakeUp()
        try ended.wait("the end of the thread")
    }
}

@Suite("T: delivery on particular threads", .limited, .serialized)
struct ContextDeliveryTests {
    private let center = NotificationCenter()
    private let calls = Recorder<String>()

    @Test("T1: an observer on a context runs when the context's thread iterates, and the post does not wait")
    func asynchronous() {
        let context = MainContext()
        center.addObserver(forName: .a, object: nil, context: context) { [calls] _ in
            calls.add(context.isOwner ? "A" : "wrong thread")
        }
        center.post(name: .a, object: nil)
        #expect(calls.all == [])
        context.settle()
        #expect(calls.all == ["A"])
    }

    @Test("T1: observers and methods on one context run in the order of posts and registrations")
    func manyObservers() {
        final class Target: Sendable {
            let calls: Recorder<String>
            init(_ calls: Recorder<String>) { self.calls = calls }
            func one(_ notification: Notification) { calls.add("one \(notification.name.rawValue)") }
            func two(_ notification: Notification) { calls.add("two \(notification.name.rawValue)") }
        }
        let context = MainContext()
        let target = Target(calls)
        center.addObserver(target, method: Target.one, name: .a, context: context)
        center.addObserver(target, method: Target.two, name: nil, context: context)
        center.addObserver(forName: .a, object: nil, context: context) { [calls] _ in calls.add("block") }
        center.post(name: .a, object: nil)
        center.post(name: .b, object: nil)
        center.post(name: .a, object: nil)
        context.settle()
        let ofA = ["one A", "two A", "block"]
        #expect(calls.all == ofA + ["two B"] + ofA)
    }

    @Test("T1: posts from many threads to many threads are complete, and the order of each poster is kept")
    func manyThreads() async throws {
        let (posters, targets, count) = (4, 3, 2_000)
        let threads = (0..<targets).map { _ in LoopThread() }
        let received = (0..<targets).map { _ in (0..<posters).map { _ in Recorder<Int>() } }
        for (thread, lists) in zip(threads, received) {
            center.addObserver(forName: .a, object: nil, context: thread.context) { notification in
                lists[notification.userInfo!["poster"] as! Int].add(notification.userInfo!["n"] as! Int)
            }
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for poster in 0..<posters {
                group.addTask { [center] in
                    try await onOwnThread {
                        for n in 0..<count {
                            center.post(name: .a, object: nil, userInfo: ["poster": poster, "n": n])
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        try await onOwnThread {
            try eventually("all", comesTo: targets * posters * count) { received.joined().map(\.count).reduce(0, +) }
            for thread in threads { try thread.stop() }
        }
        for list in received.joined() { #expect(list.all == Array(0..<count)) }
    }

    @Test("T1: a nested loop in an observer delivers the next notification")
    func nested() {
        let context = MainContext()
        center.addObserver(forName: nil, object: nil, context: context) { [calls] notification in
            calls.add(notification.name.rawValue)
            guard notification.name == .a else { return }
            context.run(mode: .modalPanel) { calls.count == 2 }
            calls.add("end of A")
        }
        center.post(name: .a, object: nil)
        center.post(name: .b, object: nil)
        context.settle()
        #expect(calls.all == ["A", "B", "end of A"])
    }

    @Test("M3, M4: an observer runs in the common modes by default, and notifications for other modes wait")
    func modes() {
        let context = MainContext()
        center.addObserver(forName: .a, object: nil, context: context) { [calls] _ in calls.add("common") }
        center.addObserver(forName: .a, object: nil, context: context, modes: [.default]) { [calls] _ in
            calls.add("default")
        }
        center.addObserver(forName: .a, object: nil, context: context, modes: ["own"]) { [calls] _ in calls.add("own") }
        context.pushMode(.eventTracking)
        center.post(name: .a, object: nil)
        context.settle()
        #expect(calls.all == ["common"])
        context.pushMode("own")
        context.settle()
        #expect(calls.all == ["common", "own"])
        context.popMode("own")
        context.popMode(.eventTracking)
        context.settle()
        #expect(calls.all == ["common", "own", "default"])
    }

    @Test("T1: a loop that sleeps with notifications for another mode is woken by one for its own mode")
    func wokenForItsMode() async throws {
        let thread = LoopThread()
        let modes: [Notification.Name: Set<RunLoopMode>] = [.a: ["own"], .b: [.common], .c: [.default]]
        for (name, modes) in modes {
            center.addObserver(forName: name, object: nil, context: thread.context, modes: modes) { [calls] _ in
                calls.add(name.rawValue)
            }
        }
        try await onOwnThread { [center, calls] in
            center.post(name: .a, object: nil)
            try thread.waitUntilAsleep()
            // The first finds the signal that waits; the others find what the drain before left.
            for count in 1...4 {
                center.post(name: count.isMultiple(of: 2) ? .b : .c, object: nil)
                try eventually("delivery \(count)") { calls.count == count }
                try thread.waitUntilAsleep()
            }
            #expect(calls.all == ["C", "B", "C", "B"])
            thread.context.pushMode("own")
            try eventually("the mode") { calls.all.last == "A" }
            try thread.stop()
        }
    }

    @Test("M3: an observer that enters a mode delays the rest of the batch until the mode is left")
    func modeEnteredInBatch() {
        let context = MainContext()
        center.addObserver(forName: nil, object: nil, context: context, modes: [.default]) { [calls] notification in
            calls.add(notification.name.rawValue)
            if notification.name == .a { context.pushMode(.modalPanel) }
        }
        center.post(name: .a, object: nil)
        center.post(name: .b, object: nil)
        context.settle()
        #expect(calls.all == ["A"])
        context.popMode(.modalPanel)
        context.settle()
        #expect(calls.all == ["A", "B"])
    }

    @Test("C8, C5: an observer that is removed, or whose target is released, before delivery is not called")
    func removedBefore() {
        final class Target: Sendable {
            let calls: Recorder<String>
            init(_ calls: Recorder<String>) { self.calls = calls }
            func handle(_: Notification) { calls.add("method") }
        }
        let context = MainContext()
        var target: Target? = Target(calls)
        weak let observed = target
        let token = center.addObserver(forName: .a, object: nil, context: context) { [calls] _ in calls.add("block") }
        center.addObserver(target!, method: Target.handle, name: .a, context: context)
        center.post(name: .a, object: nil)
        center.removeObserver(token)
        target = nil
        #expect(observed == nil)
        context.settle()
        #expect(calls.all == [])
    }

    // MARK: T2

    // In processes of their own: what is lost is counted for a whole process.

    @Test("T2: the queue of a context that never runs is bounded, and the oldest notifications are lost and counted")
    func neverRuns() async {
        await #expect(processExitsWith: .success) {
            let center = NotificationCenter()
            let context = MainContext()
            let numbers = Recorder<Int>()
            center.addObserver(forName: .a, object: nil, context: context) { notification in
                numbers.add(notification.userInfo!["n"] as! Int)
            }
            let total = DeliveryQueue.Limits.standard.count + 100
            for n in 1...total { center.post(name: .a, object: nil, userInfo: ["n": n]) }
            let lost = Int(NotificationCenter.lostDeliveries)
            #expect(lost >= 100)
            context.settle()
            let isInOrder = numbers.all == Array(lost + 1...total)
            #expect(isInOrder)
        }
    }

    @Test(
        "T2: a center does not retain a context, and a context's end ends registrations and counts waiting posts as lost"
    )
    func contextGone() async {
        await #expect(processExitsWith: .success) {
            let center = NotificationCenter()
            let calls = Recorder<String>()
            weak var waiting: Sender?
            weak var context: MainContext?
            do {
                let made = MainContext()
                context = made
                center.addObserver(forName: .a, object: nil, context: made) { _ in calls.add("A") }
                let sender = Sender()
                waiting = sender
                center.post(name: .a, object: sender)
                center.post(name: .a, object: sender)
            }
            #expect(context == nil)
            #expect(waiting == nil)
            #expect(NotificationCenter.lostDeliveries == 2)
            center.post(name: .a, object: nil)
            #expect(center.observerCount == 0)
            #expect(calls.all == [])
        }
    }

    @Test("T2: contexts can end while another thread posts to them, and their registrations end")
    func contextsEndUnderLoad() async throws {
        let isOver = Atomic(false)
        async let posting: Void = onOwnThread { [center] in
            while !isOver.load(ordering: .relaxed) { center.post(name: .a, object: nil) }
        }
        try await onOwnThread { [center, calls] in
            defer { isOver.store(true, ordering: .relaxed) }
            for _ in 0..<100 {
                let thread = LoopThread()
                let before = calls.count
                center.addObserver(forName: .a, object: nil, context: thread.context) { _ in calls.add("A") }
                try eventually("a delivery") { calls.count > before }
                try thread.stop()
            }
        }
        try await posting
        // A thread that has rung holds its context a moment longer.
        try await onOwnThread { [center] in
            try eventually("the end of all registrations") {
                center.post(name: .a, object: nil)
                return center.observerCount == 0
            }
        }
    }
}
