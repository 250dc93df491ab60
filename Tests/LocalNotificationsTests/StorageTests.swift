// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Synchronization
import Testing

/// Tells when it is let go of.
private final class Marker: Sendable {
    private let ended: Recorder<String>
    private let label: String

    init(_ label: String, _ ended: Recorder<String>) {
        (self.label, self.ended) = (label, ended)
    }

    deinit { ended.add(label) }

    func touch() {}
}

@Suite("C6, C11, T2: cost, release and bounds of stored registrations and notifications", .limited)
struct StorageTests {
    private let center = NotificationCenter()
    private let ended = Recorder<String>()

    @Test("C6: a target that removes itself in its deinit leaves no registration, and its blocks are freed at once")
    func removalInDeinit() {
        final class Target: Sendable {
            let center: NotificationCenter
            init(_ center: NotificationCenter) { self.center = center }
            deinit { center.removeObserver(self) }
        }
        for number in 0..<100 {
            let target = Target(center)
            let marker = Marker("\(number)", ended)
            center.addObserver(target, method: { _ in { _ in marker.touch() } }, name: .a)
            center.addObserver(target, method: { _ in { _ in marker.touch() } }, name: nil, object: "sender")
        }
        // Nothing was asked of the center since: what the registrations held went with them.
        #expect(ended.all == (0..<100).map { "\($0)" })
    }

    @Test("C6: a target can remove its registrations for one name or one sender in its deinit")
    func partialRemovalInDeinit() {
        final class Target: Sendable {
            let center: NotificationCenter
            let ended: Recorder<String>
            init(_ center: NotificationCenter, _ ended: Recorder<String>) {
                (self.center, self.ended) = (center, ended)
            }
            deinit {
                center.removeObserver(self, name: .a, object: nil)
                ended.add("a is removed")
                center.removeObserver(self, name: nil, object: "sender")
                ended.add("sender is removed")
            }
        }
        do {
            let target = Target(center, ended)
            let (one, two) = (Marker("a", ended), Marker("sender", ended))
            center.addObserver(target, method: { _ in { _ in one.touch() } }, name: .a)
            center.addObserver(target, method: { _ in { _ in two.touch() } }, name: nil, object: "sender")
        }
        #expect(ended.all == ["a", "a is removed", "sender", "sender is removed"])
    }

    /// A sender that counts how often it is compared.
    private struct Counting: Hashable {
        let number: Int
        let count: Recorder<Int>

        static func == (left: Counting, right: Counting) -> Bool {
            left.count.add(0)
            return left.number == right.number
        }
        func hash(into hasher: inout Hasher) { hasher.combine(number) }
    }

    @Test(
        "C11: removal by target, name and sender compares only the registrations that it removes",
        arguments: [true, false])
    func costOfRemoval(byName: Bool) {
        final class Target: Sendable { func handle(_: Notification) {} }
        let target = Target()
        let count = Recorder<Int>()
        let total = 4_000
        for number in 0..<total {
            center.addObserver(target, method: Target.handle, name: .a, object: Counting(number: number, count: count))
        }
        let before = count.count
        for number in 0..<total {
            center.removeObserver(
                target, name: byName ? .a : nil, object: Counting(number: number, count: count))
        }
        #expect(count.count - before < 40 * total)
        #expect(center.observerCount == 0)
    }

    @Test("C11: random removals by target, name and sender have the same result as in a plain list")
    func randomRemovals() {
        final class Target: Sendable {
            let calls: Recorder<Int>
            init(_ calls: Recorder<Int>) { self.calls = calls }
        }
        for seed in 0..<30 {
            var generator = SplitMix(state: UInt64(seed))
            let center = NotificationCenter()
            let calls = Recorder<Int>()
            let target = Target(calls)
            let names: [Notification.Name?] = [nil, .a, .b, "C"]
            let senders: [String?] = [nil, "x", "y", "z"]
            var model: [(id: Int, name: Notification.Name?, sender: String?)] = []
            for id in 0..<200 {
                let (name, sender) = (
                    names.randomElement(using: &generator)!, senders.randomElement(using: &generator)!
                )
                model.append((id, name, sender))
                center.addObserver(
                    target, method: { target in { _ in target.calls.add(id) } }, name: name, object: sender)
                guard id % 20 == 19 else { continue }
                let (gone, from) = (names.randomElement(using: &generator)!, senders.randomElement(using: &generator)!)
                center.removeObserver(target, name: gone, object: from)
                model.removeAll { (gone == nil || $0.name == gone) && (from == nil || $0.sender == from) }
                let before = calls.count
                center.post(name: .a, object: "x")
                let expected = model.filter { ($0.name ?? .a) == .a && ($0.sender ?? "x") == "x" }.map(\.id)
                #expect(Array(calls.all[before...]) == expected, "seed \(seed)")
            }
            #expect(center.observerCount == model.count)
        }
    }

    @Test("T2: the end of a main context frees the blocks registered for it, even if no post follows")
    func endedContext() {
        do {
            let context = MainContext()
            let marker = Marker("block", ended)
            center.addObserver(forName: .a, object: nil, context: context) { _ in marker.touch() }
            center.addObserver(forName: .b, object: nil, context: context, modes: ["own"]) { _ in marker.touch() }
        }
        #expect(ended.all == ["block"])
    }

    @Test("T2: the main contexts of observers do not keep an ended center alive")
    func endedCenter() {
        let context = MainContext()
        do {
            let center = NotificationCenter()
            let marker = Marker("center", ended)
            center.addObserver(forName: .a, object: nil, context: context) { _ in marker.touch() }
        }
        #expect(ended.all == ["center"])
        withExtendedLifetime(context) {}
    }

    @Test(
        "Q6: thousands of queues on one thread post all asap, then all when-idle notifications, in order of enqueueing")
    func manyQueues() {
        let context = MainContext()
        let posts = Recorder<Int>()
        center.addObserver(forName: .a, object: nil, queue: nil) { posts.add($0.userInfo!["n"] as! Int) }
        context.asThreadDefault {
            let queues = (0..<4_000).map { _ in NotificationQueue(notificationCenter: center) }
            for (n, queue) in queues.enumerated() {
                queue.enqueue(Notification(name: .a, userInfo: ["n": n]), postingStyle: n % 2 == 0 ? .asap : .whenIdle)
            }
            context.settle()
        }
        let even = stride(from: 0, to: 4_000, by: 2)
        #expect(posts.all == Array(even) + even.map { $0 + 1 })
    }

    @Test("Q6: notifications enqueued on a thread that has ended are freed, and the queue remains usable")
    func threadsThatEnd() async throws {
        let queue = NotificationQueue(notificationCenter: center)
        let posts = Recorder<Int>()
        center.addObserver(forName: .a, object: nil, queue: nil) { _ in posts.add(0) }
        for number in 0..<20 {
            let ended = ended
            try await onOwnThread {
                queue.enqueue(
                    Notification(name: .a, object: Marker("\(number)", ended)), postingStyle: .asap, coalesceMask: .none
                )
            }
        }
        // A thread lets go of its context a moment after the work is done.
        try await onOwnThread { [ended] in try eventually("the threads' ends") { ended.count == 20 } }
        MainContext().asThreadDefault {
            queue.enqueue(Notification(name: .a), postingStyle: .asap)
            MainContext.current.settle()
        }
        #expect(posts.count == 1)
    }

    // MARK: Bounds

    private static let mebibyte = 1 << 20

    /// Payloads of one mebibyte each, of many kinds.
    static let payloads: [(kind: String, make: @Sendable (Int) -> Any)] = [
        ("data", { Data(repeating: UInt8($0), count: mebibyte) }),
        ("bytes", { [UInt8](repeating: UInt8($0), count: mebibyte) }),
        ("text", { String(repeating: "\($0 % 10)", count: mebibyte) }),
        ("numbers", { [Double](repeating: Double($0), count: mebibyte / 8) }),
        ("nested", { ["list": [[Data(repeating: UInt8($0), count: mebibyte)]]] }),
        ("optional", { Data(repeating: UInt8($0), count: mebibyte) as Data? as Any }),
        ("struct", { Wrapped(data: Data(repeating: UInt8($0), count: mebibyte)) }),
        ("object", { Box(Data(repeating: UInt8($0), count: mebibyte)) }),
        ("NSData", { NSData(data: Data(repeating: UInt8($0), count: mebibyte)) }),
        ("NSString", { NSString(string: String(repeating: "\($0 % 10)", count: mebibyte)) }),
    ]

    private struct Wrapped { let data: Data }
    private final class Box: Sendable {
        let data: Data
        init(_ data: Data) { self.data = data }
    }

    @Test(
        "T2: the 64 MiB bound of a queue counts the contents of payloads of any type", arguments: payloads.map(\.kind))
    func boundOfQueue(kind: String) {
        let make = Self.payloads.first { $0.kind == kind }!.make
        let queue = NotificationQueue(notificationCenter: center)
        let posts = Recorder<Int>()
        center.addObserver(forName: nil, object: nil, queue: nil) { posts.add(Int($0.name.rawValue)!) }
        let context = MainContext()
        context.asThreadDefault {
            for n in 0..<70 {
                queue.enqueue(
                    Notification(name: Notification.Name("\(n)"), userInfo: ["payload": make(n)]), postingStyle: .asap,
                    coalesceMask: .none)
            }
            #expect((7...9).contains(queue.lost), "\(queue.lost) were lost")
            context.settle()
        }
        #expect(posts.all == Array(Int(queue.lost)..<70))
    }

    @Test("T2: a queue is bounded by the number of notifications, and coalescing frees space")
    func numberInQueue() {
        let queue = NotificationQueue(notificationCenter: center)
        MainContext().asThreadDefault {
            for n in 0..<140_000 {
                queue.enqueue(
                    Notification(name: .a), postingStyle: .whenIdle, coalesceMask: n < 131_072 ? .none : .onName)
            }
            #expect(queue.lost == 0)
            for _ in 0..<131_071 + 5 { queue.enqueue(Notification(name: .a), postingStyle: .asap, coalesceMask: .none) }
            #expect(queue.lost == 5)
        }
    }

    @Test("T2: the bound of a context counts the contents of payloads, once for all observers of a post")
    func boundOfContext() async {
        await #expect(processExitsWith: .success) {
            let center = NotificationCenter()
            let context = MainContext()
            let numbers = Recorder<Int>()
            // Three observers share what is posted.
            for observer in 0..<3 {
                center.addObserver(forName: .a, object: nil, context: context) { notification in
                    if observer == 2 { numbers.add(notification.userInfo!["n"] as! Int) }
                }
            }
            for n in 0..<60 {
                center.post(
                    name: .a, object: nil, userInfo: ["n": n, "payload": Data(repeating: UInt8(n), count: 1 << 20)])
            }
            #expect(NotificationCenter.lostDeliveries == 0)
            for n in 60..<100 {
                center.post(
                    name: .a, object: nil, userInfo: ["n": n, "payload": Data(repeating: UInt8(n), count: 1 << 20)])
            }
            let lost = NotificationCenter.lostDeliveries
            #expect((36 * 3...39 * 3).contains(lost), "\(lost)")
            context.settle()
            #expect(numbers.count == 100 - Int(lost / 3))
        }
    }

    private struct Large: NotificationCenter.AsyncMessage {
        typealias Subject = Sender
        let number: Int
        let data: Data
    }

    @Test("T2: messages that wait for an asynchronous observer are bounded in bytes; the oldest are lost and counted")
    func boundOfAsyncMessages() async {
        await #expect(processExitsWith: .success) {
            let center = NotificationCenter()
            let numbers = Recorder<Int>()
            let (gate, begun, done) = (Gate(), Gate(), Gate())
            let token = center.addObserver(for: Large.self) { message in
                if message.number == 0 {
                    begun.open()
                    await gate.pass()
                }
                numbers.add(message.number)
                if message.number == 100 { done.open() }
            }
            center.post(Large(number: 0, data: Data()))
            await begun.pass()
            for number in 1...100 {
                center.post(Large(number: number, data: Data(repeating: UInt8(number), count: 1 << 20)))
            }
            let lost = Int(NotificationCenter.lostDeliveries)
            #expect((36...39).contains(lost), "\(lost)")
            gate.open()
            await done.pass()
            #expect(numbers.all == [0] + Array(lost + 1...100))
            withExtendedLifetime(token) {}
        }
    }
}
