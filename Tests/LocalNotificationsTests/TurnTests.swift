// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Synchronization
import Testing

/// A loop whose time goes on only by what is done in it, and everything that may be in abundance in it.
private final class Competition: Sendable {
    private let time = Locked<Int64>(0)
    let context: MainContext
    let center = NotificationCenter()
    let queue: NotificationQueue
    /// What ran, in its order.
    let events = Recorder<String>()
    /// Keeps what is made for a test.
    private let sources = Locked<[SignalledSource]>([])
    private let descriptors = Locked<[DescriptorSource]>([])
    /// Asked before each iteration.
    private let ticks = Locked<[@Sendable (Int64) -> Void]>([])
    private let isOver = Atomic(false)

    init() {
        // The clock is set up before the context that reads it.
        let box = Weak<Competition>()
        context = MainContext(cycleClock: { box.object?.now ?? 0 })
        queue = NotificationQueue(notificationCenter: center)
        box.object = self
    }

    var now: Int64 { time.withLock { $0 } }

    /// Time goes by.
    func spend(microseconds: Int64) {
        time.withLock { $0 += microseconds * 1_000 }
    }

    /// Notifications that other threads deliver: there are always more.
    func addDeliveries() {
        center.addObserver(forName: "delivery", object: nil, context: context) { [self] _ in
            spend(microseconds: 150)
            events.add("delivery")
            if !isOver.load(ordering: .relaxed) { center.post(name: "delivery", object: nil) }
        }
        for _ in 0..<50 { center.post(name: "delivery", object: nil) }
    }

    /// An observer that enqueues again whenever it is called, and a long list besides.
    func addAsap() {
        center.addObserver(forName: "asap", object: nil, queue: nil) { [self] _ in
            spend(microseconds: 120)
            events.add("asap")
            if !isOver.load(ordering: .relaxed) { enqueue("asap", .asap) }
        }
        for _ in 0..<50 { enqueue("asap", .asap) }
    }

    /// A descriptor that is always readable and served as the main queue is.
    func addBlocks() throws {
        var ends: [Int32] = [-1, -1]
        try #require(pipe(&ends) == 0)
        let pipe = ends
        _ = write(pipe[1], "x", 1)
        let source = DescriptorSource(on: context, descriptor: pipe[0]) { [self] in
            spend(microseconds: 200)
            events.add("block")
            guard isOver.load(ordering: .relaxed) else { return }
            var byte: UInt8 = 0
            _ = read(pipe[0], &byte, 1)
        }
        descriptors.withLock { $0.append(source) }
    }

    /// Somebody's source that is always ready.
    func addIdle(_ label: String, priority: Int32) {
        let holder = Weak<SignalledSource>()
        let source = SignalledSource(on: context, priority: EventSource.Priority(rawValue: priority)) { [self] in
            spend(microseconds: 30)
            events.add(label)
            if !isOver.load(ordering: .relaxed) { holder.object?.signal() }
        }
        holder.object = source
        source.signal()
        sources.withLock { $0.append(source) }
    }

    /// Somebody's timer, at GLib's default priority.
    func addTimer(milliseconds: Int64) {
        let next = Next()
        let source = SignalledSource(on: context, priority: .default) { [self] in
            spend(microseconds: 50)
            events.add("timer")
        }
        sources.withLock { $0.append(source) }
        ticks.withLock {
            $0.append { [weak source] now in
                guard now >= next.time.load(ordering: .relaxed) else { return }
                next.time.store(now + milliseconds * 1_000_000, ordering: .relaxed)
                source?.signal()
            }
        }
    }

    /// When a timer is due.
    private final class Next: Sendable {
        let time = Atomic<Int64>(0)
    }

    func enqueue(_ name: String, _ style: NotificationQueue.PostingStyle) {
        queue.enqueue(Notification(name: Notification.Name(name)), postingStyle: style, coalesceMask: .none)
    }

    func noteIdle(_ count: Int = 3) {
        center.addObserver(forName: "idle", object: nil, queue: nil) { [events] _ in events.add("idle") }
        for _ in 0..<count { enqueue("idle", .whenIdle) }
    }

    /// What there is in abundance comes to its end.
    func end() {
        isOver.store(true, ordering: .relaxed)
    }

    /// One iteration, which takes a moment itself.
    @discardableResult
    func iterate() -> Bool {
        for tick in ticks.withLock({ $0 }) { tick(now) }
        spend(microseconds: 3)
        return context.iterate(mayBlock: false)
    }

    /// Runs for a while of its time.
    ///
    /// - Returns: the longest time, in milliseconds, between two runs of each source.
    func longestWaits(of labels: [String], forMilliseconds limit: Int64) -> [String: Double] {
        var last: [String: Int64] = [:]
        var longest: [String: Int64] = [:]
        let begin = now
        var seen = events.count
        // Each iteration takes time, so this ends.
        while now < begin + limit * 1_000_000 {
            iterate()
            let all = events.all
            for label in Set(all[seen...]) where labels.contains(label) {
                longest[label] = max(longest[label] ?? 0, now - (last[label] ?? begin))
                last[label] = now
            }
            seen = all.count
        }
        for label in labels { longest[label] = max(longest[label] ?? 0, now - (last[label] ?? begin)) }
        return longest.mapValues { Double($0) / 1e6 }
    }

    /// Iterates until nothing is ready; false when that takes too long.
    func settle() -> Bool {
        for _ in 0..<20_000 where !iterate() { return true }
        return false
    }
}

@Suite("M3, Q2: fairness of the loop between several competing sources", .limited)
struct TurnTests {
    private static let abundant = ["delivery", "asap", "block"]

    @Test(
        "M3: beside deliveries, asap items, blocks and a timer, a source of any priority runs every 16 ms",
        arguments: [1, 2, 5, 10, 16, 40] as [Int64], [-100, 0, 50, 110, 120] as [Int32])
    func everyPriority(period: Int64, priority: Int32) throws {
        let competition = Competition()
        try competition.context.asThreadDefault {
            competition.addDeliveries()
            competition.addAsap()
            try competition.addBlocks()
            competition.addTimer(milliseconds: period)
            competition.addIdle("drawing", priority: priority)
            let waits = competition.longestWaits(of: ["drawing"] + Self.abundant, forMilliseconds: 400)
            #expect(waits["drawing"]! <= 16, "\(waits)")
            // Nor is anyone of ours starved by the other two; what is always ready ahead of it has GLib's precedence.
            guard priority >= 0 else { return }
            for label in Self.abundant { #expect(waits[label]! <= 40, "\(waits)") }
        }
    }

    @Test("T3: all deliveries share 2 ms of a loop iteration equally, and a single kind gets all of it")
    func oneShare() throws {
        let costs = ["delivery": 150, "asap": 120]
        for kinds in [["delivery"], ["asap"], ["delivery", "asap"]] {
            let competition = Competition()
            competition.context.asThreadDefault {
                if kinds.contains("delivery") { competition.addDeliveries() }
                if kinds.contains("asap") { competition.addAsap() }
                competition.addIdle("drawing", priority: 120)
                _ = competition.longestWaits(of: [], forMilliseconds: 200)
            }
            let turns = competition.events.all.split(separator: "drawing").dropFirst().dropLast()
            let spent = turns.map { turn in turn.reduce(0) { $0 + costs[$1]! } }
            // One that has begun is finished, of each kind.
            let most = 2_000 + kinds.reduce(0) { $0 + costs[$1]! }
            #expect(spent.allSatisfy { $0 <= most } && spent.allSatisfy { $0 >= 1_700 }, "\(kinds): \(spent)")
            let all = turns.joined()
            for kind in kinds {
                let part = Double(all.count { $0 == kind } * costs[kind]!) / Double(spent.reduce(0, +))
                #expect(part * Double(kinds.count) > 0.8, "\(kind) had \(part) of it")
            }
        }
    }

    @Test("M3: a rarely ready idle source runs within 16 ms, even beside sources that are always ready")
    func seldom() throws {
        let competition = Competition()
        try competition.context.asThreadDefault {
            competition.addDeliveries()
            competition.addAsap()
            try competition.addBlocks()
            competition.addTimer(milliseconds: 10)
            competition.addTimer(milliseconds: 3)
            competition.addIdle("idle callback", priority: 200)
            let waits = competition.longestWaits(of: ["idle callback", "timer"], forMilliseconds: 400)
            #expect(waits["idle callback"]! <= 16 && waits["timer"]! <= 26, "\(waits)")
        }
    }

    @Test("M3: a source that is always ready starves neither deliveries, asap items nor blocks")
    func filledByOthers() throws {
        let competition = Competition()
        try competition.context.asThreadDefault {
            competition.addDeliveries()
            competition.addAsap()
            try competition.addBlocks()
            // Always ready, ahead of drawing: the loop never comes to the mark.
            competition.addIdle("other", priority: 0)
            let waits = competition.longestWaits(of: ["other"] + Self.abundant, forMilliseconds: 400)
            for label in ["other"] + Self.abundant { #expect(waits[label]! <= 30, "\(waits)") }
        }
    }

    @Test(
        "Q2: when-idle notifications come behind all ready deliveries, asap items and blocks, with timers",
        arguments: [["delivery"], ["asap"], ["block"], ["delivery", "asap", "block"]])
    func idleLast(kinds: [String]) throws {
        let competition = Competition()
        try competition.context.asThreadDefault {
            competition.noteIdle()
            if kinds.contains("delivery") { competition.addDeliveries() }
            if kinds.contains("asap") { competition.addAsap() }
            if kinds.contains("block") { try competition.addBlocks() }
            competition.addTimer(milliseconds: 7)
            _ = competition.longestWaits(of: [], forMilliseconds: 100)
            #expect(!competition.events.all.contains("idle"))
            #expect(Set(competition.events.all).isSuperset(of: kinds))
            competition.end()
            for _ in 0..<5_000 where competition.events.all.count(where: { $0 == "idle" }) < 3 { competition.iterate() }
            let left = competition.events.all.filter { $0 != "timer" }
            // The three are the last.
            #expect(Array(left.suffix(3)) == ["idle", "idle", "idle"] && left.count { $0 == "idle" } == 3)
        }
    }

    @Test("Q2: when-idle notifications also come last in a nested loop inside a delivery, an asap item or an event")
    func idleInNestedLoop() throws {
        for outer in ["delivery", "asap", "event"] {
            let competition = Competition()
            try competition.context.asThreadDefault {
                competition.noteIdle(1)
                let events = competition.events
                let nest: @Sendable () -> Void = { [unowned competition] in
                    competition.center.addObserver(forName: "more", object: nil, context: competition.context) { _ in
                        competition.spend(microseconds: 900)
                        events.add("more")
                    }
                    // More than a turn of both.
                    for _ in 0..<20 {
                        competition.center.post(name: "more", object: nil)
                        competition.enqueue("later", .asap)
                    }
                    var turns = 0
                    competition.context.run(mode: .default) {
                        turns += 1
                        competition.spend(microseconds: 3)
                        return events.all.contains("idle") || turns > 5_000
                    }
                    events.add("end of the nested loop")
                }
                competition.center.addObserver(forName: "later", object: nil, queue: nil) { _ in
                    competition.spend(microseconds: 900)
                    events.add("later")
                }
                let event = SignalledSource(on: competition.context, priority: .default, action: nest)
                switch outer {
                case "delivery":
                    competition.center.addObserver(forName: "outer", object: nil, context: competition.context) { _ in
                        nest()
                    }
                    competition.center.post(name: "outer", object: nil)
                case "asap":
                    competition.center.addObserver(forName: "outer", object: nil, queue: nil) { _ in nest() }
                    competition.enqueue("outer", .asap)
                default: event.signal()
                }
                try #require(competition.settle())
                withExtendedLifetime(event) {}
            }
            let all = competition.events.all
            #expect(all.count == 42, "\(outer): \(all)")
            #expect(Array(all.suffix(2)) == ["idle", "end of the nested loop"], "\(outer): \(all)")
        }
    }

    @Test(
        "Q2: work that a source makes ready just before when-idle, at an equal priority, comes first",
        arguments: ["late", "asap"])
    func madeReadyAtTheLastMoment(kind: String) throws {
        let competition = Competition()
        try competition.context.asThreadDefault {
            let events = competition.events
            competition.center.addObserver(forName: "late", object: nil, context: competition.context) { _ in
                events.add("late")
            }
            competition.center.addObserver(forName: "asap", object: nil, queue: nil) { _ in events.add("asap") }
            // Attached before the queue's own, so it is dispatched before it.
            let last = SignalledSource(on: competition.context, priority: .of(.whenIdle)) { [unowned competition] in
                switch kind {
                case "late": competition.center.post(name: "late", object: nil)
                default: competition.enqueue("asap", .asap)
                }
                events.add("last")
            }
            // What waits for another mode was signalled long ago.
            let own: Set<RunLoopMode> = ["own"]
            competition.center.addObserver(forName: "other", object: nil, context: competition.context, modes: own) {
                _ in events.add("other mode")
            }
            competition.center.post(name: "other", object: nil)
            competition.queue.enqueue(
                Notification(name: "asap"), postingStyle: .asap, coalesceMask: .none, forModes: ["own"])
            try #require(competition.settle())
            competition.noteIdle(1)
            last.signal()
            try #require(competition.settle())
            #expect(events.all == ["last", kind, "idle"])
        }
    }

    @Test("M3: the loop sleeps when no delivery waits, and does not sleep while deliveries are left")
    func restDoesNotSleep() throws {
        let competition = Competition()
        try competition.context.asThreadDefault {
            competition.addDeliveries()
            // Each iteration does something until all is delivered; so a loop that ends with the first that does not has
            // delivered all.
            for _ in 0..<50 { competition.iterate() }
            competition.end()
            try #require(competition.settle())
            #expect(!competition.iterate())
            let count = competition.events.count
            competition.center.post(name: "delivery", object: nil)
            #expect(competition.iterate())
            #expect(competition.events.count == count + 1)
        }
    }

    @Test("T1: the observers of one context receive all notifications in one order, even if their modes differ")
    func oneOrder() {
        let context = MainContext()
        let center = NotificationCenter()
        let calls = Recorder<String>()
        let modes: [Set<RunLoopMode>] = [[.common], [.default], ["own", .default]]
        for (number, modes) in modes.enumerated() {
            center.addObserver(forName: nil, object: nil, context: context, modes: modes) { notification in
                calls.add("\(notification.name.rawValue)\(number)")
            }
        }
        for n in 0..<20 { center.post(name: Notification.Name("\(n) "), object: nil) }
        context.settle()
        #expect(calls.all == (0..<20).flatMap { n in (0..<3).map { "\(n) \($0)" } })
    }
}
