// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Synchronization
import Testing

@Suite("C5, C7: targets, handles and sequences", .limited)
struct TargetTests {
    final class Target: Sendable {
        let calls: Recorder<String>
        let onEnd: @Sendable () -> Void

        init(_ calls: Recorder<String>, onEnd: @escaping @Sendable () -> Void = {}) {
            self.calls = calls
            self.onEnd = onEnd
        }

        deinit { onEnd() }

        func handle(_ notification: Notification) { calls.add(notification.name.rawValue) }
    }

    private let center = NotificationCenter()
    private let calls = Recorder<String>()

    @Test("B13: an observer method may take no parameter, Foundation's class, or Any")
    func shapes() {
        final class Target: Sendable {
            let calls: Recorder<String>
            init(_ calls: Recorder<String>) { self.calls = calls }
            func changed() { calls.add("nothing") }
            func changedOf(_ note: NSNotification) {
                calls.add("\(note.name.rawValue) \(note.object as? String ?? "")")
            }
            func changedAnyhow(_ note: Any) { calls.add("\(note is Notification)") }
        }
        let target = Target(calls)
        let context = MainContext()
        center.addObserver(target, method: Target.changed, name: .a)
        center.addObserver(target, method: Target.changedOf, name: .a, object: "o")
        center.addObserver(target, method: Target.changedAnyhow, name: nil)
        center.addObserver(target, method: Target.changed, name: .a, context: context)
        center.addObserver(target, method: Target.changedOf, name: .a, context: context)
        center.post(name: .a, object: "o")
        #expect(calls.all == ["nothing", "A o", "true"])
        context.settle()
        #expect(calls.all.dropFirst(3) == ["nothing", "A o"])
    }

    @Test("B13: registering a method of an actor on which a post can't wait ends the process")
    func otherActors() async {
        await #expect(processExitsWith: .failure) {
            let center = NotificationCenter()
            let target = OtherTarget()
            center.addObserver(target, method: OtherTarget.received, name: .a)
        }
        await #expect(processExitsWith: .failure) {
            let center = NotificationCenter()
            let target = MainTarget()
            center.addObserver(target, method: MainTarget.received, name: .a, queue: OperationQueue())
        }
    }

    @globalActor actor OtherActor {
        static let shared = OtherActor()
    }

    @OtherActor final class OtherTarget {
        nonisolated init() {}
        func received(_: Notification) {}
    }

    @MainActor final class MainTarget {
        nonisolated init() {}
        func received(_: Notification) {}
    }

    @Test("C5: a target is held weakly, and its registration ends with it")
    func weakTarget() {
        var target: Target? = Target(calls)
        weak let observed = target
        center.addObserver(target!, method: Target.handle, name: .a)
        center.post(name: .a, object: nil)
        target = nil
        #expect(observed == nil)
        center.post(name: .a, object: nil)
        #expect(calls.all == ["A"])
        #expect(center.observerCount == 0)
    }

    @Test("C5: registrations of ended targets are removed even if no post follows")
    func sweep() {
        for number in 0..<20_000 {
            center.addObserver(Target(calls), method: Target.handle, name: Notification.Name("\(number)"))
        }
        #expect(center.observerCount < 5_000)
    }

    @Test("C5, C7: a handle kept by its target, and the contents of its block, are freed when the target ends")
    func handleInTarget() {
        final class Listener: Sendable {
            private let observation = Locked<NotificationCenter.Observation?>(nil)
            init(_ center: NotificationCenter, _ target: Target) {
                let observation = center.observe(.a) { [weak self] _ in if self != nil { target.calls.add("A") } }
                self.observation.withLock { $0 = observation }
            }
        }
        do {
            let listener = Listener(center, Target(calls) { [calls] in calls.add("ended") })
            center.post(name: .a, object: nil)
            withExtendedLifetime(listener) {}
        }
        #expect(calls.all == ["A", "ended"])
    }

    @Test("A target that is released while its method runs lives until the method returns (C5)")
    func keptWhileCalled() {
        final class Holder: Sendable {
            let target = Locked<Releasing?>(nil)
        }
        final class Releasing: Sendable {
            let holder: Holder
            let calls: Recorder<String>
            init(_ holder: Holder, _ calls: Recorder<String>) { (self.holder, self.calls) = (holder, calls) }
            deinit { calls.add("ended") }
            func handle(_: Notification) {
                let last = holder.target.withLock { $0.take() }
                withExtendedLifetime(last) {}
                calls.add("still there")
            }
        }
        let holder = Holder()
        holder.target.withLock { $0 = Releasing(holder, calls) }
        center.addObserver(holder.target.withLock { $0! }, method: Releasing.handle, name: .a)
        center.post(name: .a, object: nil)
        #expect(calls.all == ["still there", "ended"])
    }

    @Test("C5: targets may end on one thread while another thread posts to them")
    func endsElsewhere() async throws {
        let isOver = Atomic(false)
        async let poster: Void = onOwnThread { [center] in
            while !isOver.load(ordering: .relaxed) { center.post(name: .a, object: nil) }
        }
        try await onOwnThread { [center, calls] in
            for _ in 0..<5_000 {
                let target = Target(calls)
                center.addObserver(target, method: Target.handle, name: .a)
            }
            isOver.store(true, ordering: .relaxed)
        }
        try await poster
        center.post(name: .a, object: nil)
        #expect(center.observerCount == 0)
    }

    @Test("C5, C9: a target may use the center in its deinit")
    func usesCenterAtEnd() {
        var target: Target? = Target(calls) { [center, calls] in
            center.post(name: .b, object: nil)
            center.removeObserver(calls)
        }
        center.addObserver(forName: .b, object: nil, queue: nil) { [calls] _ in calls.add("B") }
        center.addObserver(target!, method: Target.handle, name: .a)
        target = nil
        #expect(calls.all == ["B"])
    }

    @Test("C5: a block is held until its token is removed, even if the program does not keep the token")
    func block() {
        let (kept, ended) = (Recorder<String>(), calls)
        do {
            let held = Target(kept) { ended.add("ended") }
            center.addObserver(forName: .a, object: nil, queue: nil) { held.handle($0) }
            let token = center.addObserver(forName: .b, object: nil, queue: nil) { held.handle($0) }
            center.post(name: .b, object: nil)
            center.removeObserver(token)
            #expect(kept.all == ["B"])
            // The token is still here, the block is not: the other one holds it.
            withExtendedLifetime(token) {}
        }
        center.post(name: .a, object: nil)
        #expect(kept.all == ["B", "A"])
        #expect(ended.all == [])
    }

    @Test("C5: a removed block is freed at once, even if its token is kept")
    func removedBlock() {
        let token: NotificationCenter.Token
        do {
            let held = Target(calls) { [calls] in calls.add("ended") }
            token = center.addObserver(forName: .a, object: nil, queue: nil) { held.handle($0) }
        }
        center.removeObserver(token)
        #expect(calls.all == ["ended"])
        withExtendedLifetime(token) {}
    }

    // MARK: C7

    @Test("C7: an observation ends with its handle, or when it is cancelled")
    func observation() {
        var observation: NotificationCenter.Observation? = center.observe(.a) { [calls] _ in calls.add("A") }
        center.post(name: .a, object: nil)
        observation = nil
        center.post(name: .a, object: nil)
        #expect(calls.all == ["A"])
        observation = center.observe(.a) { [calls] _ in calls.add("A") }
        observation?.cancel()
        observation?.cancel()
        center.post(name: .a, object: nil)
        #expect(calls.all == ["A"])
        #expect(center.observerCount == 0)
    }

    @Test("C7: a sequence yields the notifications posted since its creation, in order")
    func sequence() async {
        let notifications = center.notifications(named: .a, object: "sender")
        for number in 1...3 { center.post(name: .a, object: "sender", userInfo: ["n": number]) }
        center.post(name: .a, object: "other")
        center.post(name: .b, object: "sender")
        var numbers: [Int] = []
        for await notification in notifications {
            numbers.append(notification.userInfo?["n"] as? Int ?? 0)
            if numbers.count == 3 { break }
        }
        #expect(numbers == [1, 2, 3])
    }

    @Test("C7: a full buffer discards and counts the oldest notification")
    func overflow() async {
        let notifications = center.notifications(named: .a, bufferLimit: 10)
        for number in 1...25 { center.post(name: .a, object: nil, userInfo: ["n": number]) }
        #expect(notifications.lost == 15)
        var iterator = notifications.makeAsyncIterator()
        #expect(await iterator.next()?.userInfo?["n"] as? Int == 16)
    }

    @Test("C7: each iterator of a sequence receives all notifications, also after another iterator has ended")
    func readers() async {
        let sender = Sender()
        let notifications = center.notifications(named: .a, object: sender)
        let cancelled = Task { for await _ in notifications {} }
        cancelled.cancel()
        await cancelled.value
        var (one, two) = (notifications.makeAsyncIterator(), notifications.makeAsyncIterator())
        #expect(center.observerCount == 2)
        for number in 1...2 { center.post(name: .a, object: sender, userInfo: ["n": number]) }
        for number in 1...2 {
            #expect(await one.next()?.userInfo?["n"] as? Int == number)
            #expect(await two.next()?.userInfo?["n"] as? Int == number)
        }
    }

    private final class Sender: Sendable {}

    @Test("C7: a sequence of an ended sender receives no posts, not even of a new object at the same address")
    func readersOfNobody() async {
        var sender: Sender? = Sender()
        let notifications = center.notifications(named: .a, object: sender)
        sender = nil
        center.post(name: .a, object: Sender())
        let task = Task { for await _ in notifications { Issue.record("it heard something") } }
        var iterator = notifications.makeAsyncIterator()
        for _ in 0..<100 { center.post(name: .a, object: Sender()) }
        task.cancel()
        await task.value
        let other = Task { await iterator.next() == nil }
        other.cancel()
        #expect(await other.value)
    }

    @Test("C7: a released sequence, or one whose task is cancelled, has no registration")
    func sequenceEnds() async {
        do {
            let notifications = center.notifications(named: .a)
            #expect(center.observerCount == 1)
            withExtendedLifetime(notifications) {}
        }
        #expect(center.observerCount == 0)

        let notifications = center.notifications(named: .a)
        let task = Task { for await _ in notifications {} }
        task.cancel()
        await task.value
        #expect(center.observerCount == 0)
    }
}
