// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("Methods of objects as observers (C5), and operation queues (C4)", .limited)
struct TargetTests {
    @Test("C5: the center does not keep a target alive, and its registration ends after the target")
    func weakly() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        weak var reference: Recorder?
        do {
            let target = Recorder(ear.heard)
            reference = target
            ear.center.addObserver(target, method: Recorder.received, name: .init("a"))
            poster.post("a", number: 0)
            try ear.center.settle()
            poster.post("a", number: 1)
            let heard = try ear.everything(from: poster)
            #expect(heard.last == "target 1")
            withExtendedLifetime(target) {}
        }
        #expect(reference == nil)
        let count = try ear.everything(from: poster).count
        poster.post("a", number: 2)
        #expect(try ear.everything(from: poster).count == count)
        try eventually("its registration is gone") { try observerCounts(on: desk.bus) == [1] }
    }

    @Test("C5: a target that removes itself in its deinit leaves no registration, without any notification")
    func removingItself() throws {
        final class Target {
            let center: DistributedNotificationCenter
            init(_ center: DistributedNotificationCenter) {
                self.center = center
                center.addObserver(self, method: Target.received, name: .init("a"))
                center.addObserver(self, method: Target.received, name: .init("b"), object: "o")
            }
            deinit { center.removeObserver(self) }
            func received(_ note: Notification) {}
        }
        let desk = try Desk()
        let center = desk.center()
        for _ in 0..<100 { _ = Target(center) }
        try center.settle()
        try expectObserverCounts([], on: desk.bus)
    }

    @Test("E1, C5: registrations of released targets without notifications do not accumulate")
    func leftBehind() throws {
        let desk = try Desk()
        let center = desk.center()
        for number in 0..<20_000 {
            center.addObserver(Recorder(Inbox()), method: Recorder.received, name: .init("\(number)"))
        }
        try center.settle()
        #expect(center.statistics.refusedObservers == 0)
        #expect(try observerCounts(on: desk.bus).reduce(0, +) < 1_000)
    }

    @globalActor actor OtherActor {
        static let shared = OtherActor()
    }

    @Test("A method of the main actor runs there, and a method of another actor is refused")
    func isolation() throws {
        @MainActor final class MainTarget {
            nonisolated let heard: Inbox<String>
            nonisolated init(_ heard: Inbox<String>) { self.heard = heard }
            func received(_ note: Notification) {
                MainActor.preconditionIsolated()
                heard.add("main actor")
            }
        }
        @OtherActor final class OtherTarget {
            nonisolated init() {}
            func received(_ note: Notification) { Issue.record("it was called") }
        }
        /// Not Sendable, and in its own context.
        final class PlainTarget {
            let heard: Inbox<String>
            init(_ heard: Inbox<String>) { self.heard = heard }
            func received(_ note: Notification) { heard.add("main thread: \(Thread.isMainThread)") }
        }
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let (main, other, plain) = (MainTarget(ear.heard), OtherTarget(), PlainTarget(ear.heard))
        ear.center.addObserver(plain, method: PlainTarget.received, name: .init("plain"))
        ear.center.addObserver(main, method: MainTarget.received, name: .init("main"))
        ear.center.addObserver(other, method: OtherTarget.received, name: .init("other"))
        #expect(ear.center.statistics.refusedObservers == 1)
        try ear.center.settle()
        for name in ["plain", "main", "other"] { poster.post(name, number: 0) }
        let heard = try ear.everything(from: poster)
        #expect(heard.contains("main thread: false"))
        // Its turn comes when the main thread of the test runner runs its queue.
        try eventually("the main actor's") { ear.heard.contains { $0 == "main actor" } }
        withExtendedLifetime((main, other, plain)) {}
    }

    @Test("B13: observer methods may take no parameter, an NSNotification or Any")
    func shapes() throws {
        final class Target: Sendable {
            let heard: Inbox<String>
            init(_ heard: Inbox<String>) { self.heard = heard }
            func changed() { heard.add("nothing") }
            func changedOf(_ note: NSNotification) {
                let number = note.userInfo?["number"] as? Int ?? -1
                heard.add("\(note.name.rawValue) \(note.object as? String ?? "") \(number)")
            }
            func changedAnyhow(_ note: Any) { heard.add("\(note is Notification)") }
        }
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let target = Target(ear.heard)
        ear.center.addObserver(target, method: Target.changed, name: .init("a"))
        ear.center.addObserver(target, method: Target.changedOf, name: .init("a"))
        ear.center.addObserver(target, method: Target.changedAnyhow, name: .init("a"), object: "o")
        try ear.center.settle()
        poster.postNotificationName(.init("a"), object: "o", userInfo: ["number": 7])
        #expect(try ear.everything(from: poster) == ["nothing", "a o 7", "true"])
        ear.center.removeObserver(target)
        poster.post("a", number: 8)
        #expect(try ear.everything(from: poster).count == 3)
    }

    @Test("M4: observers of a main context run in its modes, and their registrations end with the context")
    func contexts() throws {
        final class Target: Sendable {
            let heard: Inbox<String>
            init(_ heard: Inbox<String>) { self.heard = heard }
            func received(_ note: Notification) { heard.add("method") }
        }
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let target = Target(ear.heard)
        var context: MainContext? = MainContext()
        let observations = [
            ear.center.observe(.init("a"), context: context!) { [heard = ear.heard] _ in heard.add("common") },
            ear.center.observe(.init("a"), context: context!, modes: [.modalPanel]) { [heard = ear.heard] _ in
                heard.add("modal")
            },
        ]
        ear.center.addObserver(target, method: Target.received, name: .init("a"), context: context)
        try ear.center.settle()
        poster.post("a", number: 1)
        #expect(try ear.everything(from: poster) == [], "nobody runs the context")
        context!.iterate(mayBlock: false)
        #expect(ear.heard.all.filter { !$0.hasPrefix("end") } == ["common", "method"])
        context!.run(mode: .modalPanel) { ear.heard.contains { $0 == "modal" } }
        #expect(try observerCounts(on: desk.bus) != [1])
        context = nil
        try eventually("the registrations are gone") { try observerCounts(on: desk.bus) == [1] }
        withExtendedLifetime((observations, target)) {}
    }

    @Test("C5: a target released by another thread during its method remains alive until the method returns")
    func releasedElsewhere() async throws {
        final class Target: Sendable {
            private let state = Locked(["alive"])
            let calls: Inbox<Bool>
            let hasBegun: Doorbell
            init(_ calls: Inbox<Bool>, _ hasBegun: Doorbell) {
                self.calls = calls
                self.hasBegun = hasBegun
            }
            deinit { state.withLock { $0 = [] } }
            func received(_ note: Notification) {
                hasBegun.ring()
                for _ in 0..<50 { if state.withLock({ $0 }) != ["alive"] { return calls.add(false) } }
                calls.add(true)
            }
        }
        let desk = try Desk()
        let center = desk.center()
        let calls = Inbox<Bool>()
        try await onOwnThread {
            for round in 0..<300 {
                let hasBegun = Doorbell()
                let target = Locked<Target?>(Target(calls, hasBegun))
                center.addObserver(target.withLock { $0! }, method: Target.received, name: .init("a"))
                for _ in 0..<3 { center.post("a", number: round) }
                let isReleased = Doorbell()
                Thread {
                    guard (try? hasBegun.wait()) != nil else { return }
                    target.withLock { $0 = nil }
                    isReleased.ring()
                }.start()
                try isReleased.wait("round \(round)", within: .start)
            }
            try center.settle()
        }
        #expect(!calls.all.isEmpty && calls.all.allSatisfy { $0 })
        // The last of them may wait for another notification, or another observer.
        center.post("a", number: -1)
        try eventually("their registration is gone") { try observerCounts(on: desk.bus) == [] }
    }

    @Test("C4: blocks run in order on their operation queue, even if the queue runs several at once")
    func queues() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 8
        let places = Inbox<Bool>()
        ear.center.addObserver(forName: .init("a"), object: nil, queue: queue) { [weak queue] _ in
            places.add(OperationQueue.current === queue)
        }
        try ear.listen("a", tag: "a", queue: queue)
        for number in 0..<500 { poster.post("a", number: number) }
        _ = try ear.everything(from: poster)
        queue.waitUntilAllOperationsAreFinished()
        try eventually("all of them", comesTo: 500) { ear.heard.all.count { $0.hasPrefix("a ") } }
        #expect(ear.heard.all.filter { $0.hasPrefix("a ") } == (0..<500).map { "a \($0)" })
        #expect(try places.wait(for: 500).allSatisfy { $0 })
    }

    @Test("C4: a suspended operation queue delays no other observer and loses no notification")
    func standing() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let standing = OperationQueue()
        standing.isSuspended = true
        try ear.listen("a", tag: "standing", queue: standing)
        try ear.listen("a", tag: "own")
        for number in 0..<3 { poster.post("a", number: number) }
        #expect(try ear.everything(from: poster) == ["own 0", "own 1", "own 2"])
        standing.isSuspended = false
        try eventually("the others") { ear.heard.contains { $0 == "standing 2" } }
        #expect(ear.heard.all.filter { $0.hasPrefix("standing") } == ["standing 0", "standing 1", "standing 2"])
    }

    @Test("C4: the center keeps the operation queue of an observer alive")
    func kept() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        try ear.listen("a", tag: "a", queue: OperationQueue())
        poster.post("a", number: 0)
        try eventually("the notification") { ear.heard.contains { $0 == "a 0" } }
    }

    @Test("T2: notifications waiting for a queue are limited in bytes; the oldest are discarded and reported")
    func bounded() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let lost = Locked<UInt64>(0)
        let observation = ear.center.observeEvents { event in
            if case .mayHaveMissedNotifications(.overflow(let count)) = event { lost.withLock { $0 += count } }
        }
        let standing = OperationQueue()
        standing.isSuspended = true
        try ear.listen("a", tag: "a", queue: standing)
        let payload = Data(count: 1_000_000)
        let posts = 100
        for number in 0..<posts {
            poster.postNotificationName(.init("a"), object: nil, userInfo: ["number": number, "payload": payload])
            // No more at once than the poster's own queue and the service's take.
            if number % 10 == 9 { _ = try ear.everything(from: poster) }
        }
        standing.isSuspended = false
        standing.waitUntilAllOperationsAreFinished()
        try eventually("the newest") { ear.heard.contains { $0 == "a \(posts - 1)" } }
        let overflowed = Int(ear.center.statistics.overflowed)
        #expect((30..<40).contains(overflowed), "64 MiB fit")
        #expect(ear.heard.all.filter { $0.hasPrefix("a ") } == (overflowed..<posts).map { "a \($0)" })
        try eventually("the program is told of all") { lost.withLock { $0 } == UInt64(overflowed) }
        withExtendedLifetime(observation) {}
    }
}
