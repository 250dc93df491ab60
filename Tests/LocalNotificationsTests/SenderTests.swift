// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Testing

@Suite("N2, C1: senders of every kind", .limited)
struct SenderTests {
    private let center = NotificationCenter()
    private let calls = Recorder<String>()

    private func observe(_ label: String, _ object: Any?) -> any NSObjectProtocol {
        center.addObserver(forName: .a, object: object, queue: nil) { [calls] _ in calls.add(label) }
    }

    /// Who is called for a post from a sender.
    private func called(for object: Any?) -> [String] {
        let before = calls.count
        center.post(name: .a, object: object)
        return Array(calls.all[before...])
    }

    /// As an `Any`, in which the Optional stays.
    private func wrapped<Value>(_ value: Value?) -> Any { value as Any }

    @Test("N2: an Optional in an Any matches as its contents at any depth, and an empty one as no sender")
    func optionals() {
        let object = Sender()
        let twice: Sender?? = object
        _ = observe("object", wrapped(object))
        _ = observe("text", wrapped("text"))
        _ = observe("number", wrapped(7))
        _ = observe("any", wrapped(nil as Sender?))
        _ = observe("boxed", AnyHashable("boxed"))
        for sender in [object, wrapped(object), twice as Any, wrapped(twice)] as [Any] {
            #expect(called(for: sender) == ["object", "any"])
        }
        #expect(called(for: "text") == ["text", "any"] && called(for: wrapped("text")) == ["text", "any"])
        #expect(called(for: wrapped(7)) == ["number", "any"])
        #expect(called(for: AnyHashable(wrapped("text") as! String)) == ["text", "any"])
        #expect(called(for: "boxed") == ["any", "boxed"])
        // An empty one is no sender.
        #expect(called(for: wrapped(nil as String?)) == ["any"])
        #expect(called(for: wrapped(nil as Sender?)) == ["any"])
    }

    @Test("N2: removal compares the contents of Optionals")
    func removal() {
        final class Target: Sendable { func handle(_: Notification) {} }
        let (target, object) = (Target(), Sender())
        center.addObserver(target, method: Target.handle, name: .a, object: wrapped(object))
        center.addObserver(target, method: Target.handle, name: .a, object: "text")
        center.removeObserver(target, name: .a, object: object)
        #expect(center.observerCount == 1)
        center.removeObserver(target, name: .a, object: wrapped("text"))
        #expect(center.observerCount == 0)
    }

    @Test("N2: a sender without identity or equality can be registered, is never matched, and is removed by its token")
    func incomparable() {
        struct Incomparable {}
        let token = observe("never", Incomparable())
        _ = observe("nor this", wrapped(Incomparable()))
        _ = observe("any", nil)
        #expect(called(for: Incomparable()) == ["any"])
        #expect(called(for: wrapped(Incomparable())) == ["any"])
        #expect(called(for: nil) == ["any"])
        #expect(center.observerCount == 3)
        center.removeObserver(token)
        #expect(center.observerCount == 2)
    }

    @Test("N2, Q3: Optionals in a queue coalesce with their contents, and senders without equality never coalesce")
    func coalescing() {
        struct Incomparable {}
        let queue = NotificationQueue(notificationCenter: center)
        let numbers = Recorder<Int>()
        center.addObserver(forName: nil, object: nil, queue: nil) { numbers.add($0.userInfo!["n"] as! Int) }
        let context = MainContext()
        let object = Sender()
        context.asThreadDefault {
            let senders = [
                "text", wrapped("text"), object, wrapped(object), wrapped(nil as String?), wrapped(Incomparable()),
                Incomparable(),
            ]
            for (n, sender) in senders.enumerated() {
                queue.enqueue(
                    Notification(name: .a, object: sender, userInfo: ["n": n]), postingStyle: .asap,
                    coalesceMask: .onSender)
            }
            queue.enqueue(
                Notification(name: .b, userInfo: ["n": 7]), postingStyle: .asap, coalesceMask: .onSender)
            context.settle()
        }
        #expect(numbers.all == [1, 3, 5, 6, 7])
    }

    // MARK: deinit

    /// Posts itself at its end.
    private final class Ending: Sendable {
        let atEnd: @Sendable (Ending) -> Void
        init(_ atEnd: @escaping @Sendable (Ending) -> Void) { self.atEnd = atEnd }
        deinit { atEnd(self) }
    }

    @Test("C1: a post of a sender in its own deinit reaches the observers of the sender")
    func postedInDeinit() {
        do {
            let sender = Ending { [center] in center.post(name: .a, object: $0) }
            _ = observe("it", sender)
            _ = observe("any", nil)
            _ = observe("another", Sender())
        }
        #expect(calls.all == ["it", "any"])
    }

    @Test("C1, C4: an observer on an operation queue receives a post from a deinit together with its sender")
    func postedInDeinitToQueue() async throws {
        let queue = OperationQueue()
        let heard = Recorder<Bool>()
        try await onOwnThread { [center] in
            for _ in 0..<100 {
                let sender = Ending { [center] in center.post(name: .a, object: $0) }
                center.addObserver(forName: .a, object: sender, queue: queue) { heard.add($0.object is Ending) }
            }
            queue.waitUntilAllOperationsAreFinished()
        }
        #expect(heard.all == Array(repeating: true, count: 100))
    }

    @Test(
        "C1, T1: observers on a main context, or behind a notification queue, get no sender if it posted in its deinit")
    func postedInDeinitLater() {
        let context = MainContext()
        let queue = NotificationQueue(notificationCenter: center)
        let heard = Recorder<String>()
        context.asThreadDefault {
            do {
                let sender = Ending { [center] in
                    center.post(name: .a, object: $0)
                    queue.enqueue(Notification(name: .b, object: $0), postingStyle: .asap)
                }
                center.addObserver(forName: .a, object: sender, context: context) {
                    heard.add("A \($0.object == nil)")
                }
                center.addObserver(forName: .b, object: nil, queue: nil) { heard.add("B \($0.object == nil)") }
            }
            context.settle()
        }
        #expect(Set(heard.all) == ["A true", "B true"])
    }
}
