// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Testing

@Suite("C: the center within the process", .limited)
struct CenterTests {
    private let center = NotificationCenter()
    private let calls = Recorder<String>()

    private func observe(_ label: String, _ name: Notification.Name?, _ object: Any? = nil) -> NotificationCenter.Token
    {
        center.addObserver(forName: name, object: object, queue: nil) { [calls] _ in calls.add(label) }
    }

    // MARK: C1, C3

    @Test("C1: observers match by name and sender, and each of the two may be any")
    func matching() {
        let (sender, other) = (Sender(), Sender())
        _ = observe("name and sender", .a, sender)
        _ = observe("name", .a)
        _ = observe("sender", nil, sender)
        _ = observe("everything", nil)
        func posted(_ name: Notification.Name, _ object: Any?) -> [String] {
            let before = calls.count
            center.post(name: name, object: object)
            return Array(calls.all[before...])
        }
        #expect(posted(.a, sender) == ["name and sender", "name", "sender", "everything"])
        #expect(posted(.a, other) == ["name", "everything"])
        #expect(posted(.a, nil) == ["name", "everything"])
        #expect(posted(.b, sender) == ["sender", "everything"])
        #expect(posted(.b, other) == ["everything"])
        #expect(posted(.b, nil) == ["everything"])
    }

    @Test("N2, C1: an observer gets name, sender and userInfo as they were posted")
    func contents() {
        let sender = Sender()
        let seen = Recorder<Bool>()
        center.addObserver(forName: .a, object: sender, queue: nil) { notification in
            seen.add(
                notification.name == .a && notification.object as AnyObject === sender
                    && notification.userInfo?["key"] as? [Int] == [1, 2])
        }
        center.post(name: .a, object: sender, userInfo: ["key": [1, 2]])
        #expect(seen.all == [true])
    }

    @Test("C3: observers of all four kinds run in order of registration, also after removals")
    func order() {
        let sender = Sender()
        let kinds: [(Notification.Name?, Sender?)] = [(.a, sender), (.a, nil), (nil, sender), (nil, nil)]
        var generator = SplitMix.ofTest("CenterTests.order", standard: 3)
        for _ in 0..<50 {
            let center = NotificationCenter()
            let calls = Recorder<Int>()
            var tokens: [(Int, NotificationCenter.Token)] = []
            for number in 0..<20 {
                let (name, object) = kinds.randomElement(using: &generator)!
                tokens.append(
                    (
                        number,
                        center.addObserver(forName: name, object: object, queue: nil) { _ in calls.add(number) }
                    ))
                if Bool.random(using: &generator) {
                    center.removeObserver(tokens.remove(at: tokens.indices.randomElement(using: &generator)!).1)
                }
            }
            center.post(name: .a, object: sender)
            #expect(calls.all == tokens.map(\.0))
        }
    }

    // MARK: C2, C8

    @Test("C2, C8: a post is synchronous, and a post inside an observer finishes before the outer post continues")
    func nesting() {
        center.addObserver(forName: .a, object: nil, queue: nil) { [center, calls] _ in
            calls.add("a begins")
            center.post(name: .b, object: nil)
            calls.add("a ends")
        }
        _ = observe("b", .b)
        _ = observe("second a", .a)
        center.post(name: .a, object: nil)
        #expect(calls.all == ["a begins", "b", "a ends", "second a"])
    }

    @Test("C8: an observer that is removed during a post, before its call, is not called")
    func removedDuringPost() {
        let tokens = Recorder<NotificationCenter.Token>()
        center.addObserver(forName: .a, object: nil, queue: nil) { [center, calls] _ in
            calls.add("first")
            for token in tokens.all { center.removeObserver(token) }
        }
        tokens.add(observe("second", .a))
        tokens.add(observe("third", nil))
        center.post(name: .a, object: nil)
        #expect(calls.all == ["first"])
    }

    @Test(
        "C8: an observer can remove itself during a post, and an observer added during a post is not called for that post"
    )
    func changedDuringPost() {
        let own = Recorder<NotificationCenter.Token>()
        own.add(
            center.addObserver(forName: .a, object: nil, queue: nil) { [center, calls] _ in
                calls.add("once")
                center.removeObserver(own.all[0])
                center.addObserver(forName: .a, object: nil, queue: nil) { _ in calls.add("new") }
            })
        center.post(name: .a, object: nil)
        #expect(calls.all == ["once"])
        center.post(name: .a, object: nil)
        #expect(calls.all == ["once", "new"])
    }

    // MARK: C6, C10

    @Test("C6: removal by name, sender, both or neither affects only the registrations of its observer")
    func removal() {
        final class Target: Sendable {
            let calls: Recorder<String>
            let label: String

            init(_ label: String, _ calls: Recorder<String>) {
                (self.label, self.calls) = (label, calls)
            }

            func handle(_ notification: Notification) {
                calls.add("\(label) \(notification.name.rawValue)")
            }
        }
        let sender = Sender()
        let (one, two) = (Target("one", calls), Target("two", calls))
        func registered() -> NotificationCenter {
            let center = NotificationCenter()
            for target in [one, two] {
                for (name, object) in [(.a, sender), (.a, nil), (.b, sender), (nil, nil)]
                    as [(Notification.Name?, Any?)]
                {
                    center.addObserver(target, method: Target.handle, name: name, object: object)
                }
            }
            return center
        }
        func left(_ center: NotificationCenter, of label: String = "one") -> Int {
            let before = calls.count
            center.post(name: .a, object: sender)
            center.post(name: .b, object: sender)
            let new = calls.all[before...]
            if label == "one" { #expect(new.filter { $0.hasPrefix("two") }.count == 5) }
            return new.filter { $0.hasPrefix(label) }.count
        }
        // (a, sender) 1, (a, any) 1, (b, sender) 1, everything 2.
        #expect(left(registered()) == 5)
        for (name, object, expected) in [
            (.a, nil, 3), (.a, sender, 4), (nil, sender, 3), (nil, nil, 0), (.b, Sender(), 5), ("C", nil, 5),
            (nil, "text", 5),
        ] as [(Notification.Name?, Any?, Int)] {
            let center = registered()
            center.removeObserver(one, name: name, object: object)
            #expect(left(center) == expected, "\(String(describing: name)) \(String(describing: object))")
        }
        let center = registered()
        center.removeObserver(one)
        #expect(left(center) == 0)
        #expect(center.observerCount == 4)
    }

    @Test("C6: a token is removed by name and sender only if it was registered so")
    func tokenByName() {
        let token = observe("a", .a, "sender")
        center.removeObserver(token, name: .b, object: nil)
        center.removeObserver(token, name: nil, object: "other")
        #expect(center.observerCount == 1)
        center.removeObserver(token, name: .a, object: "sender")
        #expect(center.observerCount == 0)
    }

    @Test("C10: an observer that registers twice is called twice, and one removal ends both registrations")
    func twice() {
        final class Target: Sendable {
            let calls: Recorder<String>
            init(_ calls: Recorder<String>) { self.calls = calls }
            func handle(_: Notification) { calls.add("x") }
        }
        let target = Target(calls)
        center.addObserver(target, method: Target.handle, name: .a)
        center.addObserver(target, method: Target.handle, name: .a)
        center.post(name: .a, object: nil)
        #expect(calls.count == 2)
        center.removeObserver(target)
        center.post(name: .a, object: nil)
        #expect(calls.count == 2)
    }

    @Test("C10: a second removal of a token does not remove another observer")
    func removedTwice() {
        let first = observe("first", .a)
        center.removeObserver(first)
        // Takes over the place that is free now.
        _ = observe("stranger", .a)
        center.removeObserver(first)
        center.post(name: .a, object: nil)
        #expect(calls.all == ["stranger"])
    }

    @Test("C6: removal of another center's token or of an unregistered object has no effect")
    func strangers() {
        let other = NotificationCenter()
        let token = other.addObserver(forName: .a, object: nil, queue: nil) { _ in }
        _ = observe("a", .a)
        center.removeObserver(token)
        center.removeObserver("no observer")
        center.removeObserver(Sender())
        #expect(center.observerCount == 1)
        #expect(other.observerCount == 1)
    }

    // MARK: N2, C12

    @Test("N2: value senders match by equality")
    func equalValues() {
        struct Place: Hashable { let x: Int }
        _ = observe("text", .a, "sender")
        _ = observe("place", .a, Place(x: 1))
        _ = observe("number", nil, 7)
        _ = observe("type", .a, Sender.self)
        center.post(name: .a, object: ["sen", "der"].joined())
        center.post(name: .a, object: Place(x: 1))
        center.post(name: .b, object: 7)
        center.post(name: .a, object: Sender.self)
        center.post(name: .a, object: Place(x: 2))
        center.post(name: .a, object: "Sender")
        center.post(name: .a, object: CenterTests.self)
        #expect(calls.all == ["text", "place", "number", "type"])
    }

    @Test("N2: object senders match by identity, also if they compare as equal")
    func identity() {
        final class Equal: Hashable, Sendable {
            static func == (_: Equal, _: Equal) -> Bool { true }
            func hash(into hasher: inout Hasher) {}
        }
        let sender = Equal()
        _ = observe("it", .a, sender)
        center.post(name: .a, object: Equal())
        #expect(calls.all == [])
        center.post(name: .a, object: sender)
        #expect(calls.all == ["it"])
    }

    @Test("N2: a sender without equality matches the observers of any sender only")
    func incomparable() {
        struct Incomparable {}
        _ = observe("any", .a)
        center.post(name: .a, object: Incomparable())
        #expect(calls.all == ["any"])
    }

    @Test("C12: a new sender at the address of a released sender does not match its observers")
    func addressReuse() throws {
        /// How often one of many new senders has the address of one that is over.
        func reuse(whileObserved isObserved: Bool) -> Int {
            var count = 0
            for _ in 0..<50 {
                var sender: Sender? = Sender()
                let address = ObjectIdentifier(sender!)
                let token: any NSObjectProtocol = center.addObserver(forName: .a, object: sender, queue: nil) {
                    [calls] _ in calls.add("of the dead")
                }
                if !isObserved { center.removeObserver(token) }
                sender = nil
                let new = (0..<200).map { _ in Sender() }
                if new.contains(where: { ObjectIdentifier($0) == address }) { count += 1 }
                for sender in new { center.post(name: .a, object: sender) }
            }
            return count
        }
        #expect(reuse(whileObserved: true) == 0)
        // Without an observer it is the rule, as far as other threads leave it one, so the first says something.
        try eventually("an address is used again") { reuse(whileObserved: false) > 0 }
        #expect(calls.all == [])
    }

    @Test("C12: an observed sender is not kept alive")
    func senderWeak() {
        weak var sender: Sender?
        do {
            let object = Sender()
            sender = object
            _ = observe("a", .a, object)
        }
        #expect(sender == nil)
    }

    @Test("C12: an empty name is refused when registering and when posting")
    func emptyName() async {
        await #expect(processExitsWith: .failure) {
            NotificationCenter().addObserver(forName: Notification.Name(""), object: nil, queue: nil) { _ in }
        }
        await #expect(processExitsWith: .failure) {
            NotificationCenter().post(name: Notification.Name(""), object: nil)
        }
    }

    // MARK: C11

    @Test("C11: a post compares its sender with few of 10,000 observers of other senders")
    func manyOthers() {
        // Each look at a sender's key compares it: a sender that counts this shows how many are looked at.
        final class Count: Sendable {
            let comparisons = Recorder<Int>()
        }
        struct Counting: Hashable {
            let number: Int
            let count: Count
            static func == (left: Counting, right: Counting) -> Bool {
                left.count.comparisons.add(0)
                return left.number == right.number
            }
            func hash(into hasher: inout Hasher) { hasher.combine(number) }
        }
        let count = Count()
        for number in 0..<10_000 { _ = observe("\(number)", .a, Counting(number: number, count: count)) }
        let before = count.comparisons.count
        center.post(name: .a, object: Counting(number: 5_000, count: count))
        #expect(calls.all == ["5000"])
        #expect(count.comparisons.count - before < 100)
    }
}
