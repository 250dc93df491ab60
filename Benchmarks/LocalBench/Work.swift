// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation
import LocalNotifications

/// One row: the same work for both.
struct Work: Sendable {
    let name: String
    /// How many times it is done.
    let count: Int
    var time = Time.processor
    let ours: @Sendable () -> () -> Void
    let theirs: @Sendable () -> () -> Void

    /// What is measured.
    enum Time {
        /// The processor's, of all threads and in the kernel as well: what else the machine does hardly counts.
        case processor
        /// That goes by: where threads wait for each other.
        case elapsed
    }

    static let all =
        [
            oneObserver, twoThreads, twoThreadsProcessor, amongOthers, amongSenders, fanOut, addAlone, addAmongOthers,
            addOfSameName, addAndRemove,
        ]
        + queueStyles
}

/// What both centers have.
protocol Center: AnyObject, Sendable {
    init()
    func observe(_ name: Notification.Name?, _ sender: AnyObject?, _ block: @escaping @Sendable () -> Void) -> Any
    func unobserve(_ token: Any)
    func post(_ notification: Notification)
}

extension LocalNotifications.NotificationCenter: Center {
    func observe(_ name: Notification.Name?, _ sender: AnyObject?, _ block: @escaping @Sendable () -> Void) -> Any {
        addObserver(forName: name, object: sender, queue: nil) { _ in block() }
    }

    func unobserve(_ token: Any) { removeObserver(token) }
}

extension Foundation.NotificationCenter: Center {
    func observe(_ name: Notification.Name?, _ sender: AnyObject?, _ block: @escaping @Sendable () -> Void) -> Any {
        addObserver(forName: name, object: sender, queue: nil) { _ in block() }
    }

    func unobserve(_ token: Any) { removeObserver(token) }
}

final class Sender: Sendable {}

/// Counts what arrives; one thread posts.
final class Counter: @unchecked Sendable {
    // Sendable: only the posting thread calls the observers.
    var count = 0

    /// So that no figure is one of notifications that did not arrive.
    func check(_ expected: Int) {
        precondition(count == expected, "\(count) of \(expected) arrived")
    }
}

private let posted = Notification.Name("posted")

extension Work {
    private typealias Ours = LocalNotifications.NotificationCenter
    private typealias Theirs = Foundation.NotificationCenter

    private static let oneObserver = both("post to one observer", 200_000) { post($0, 200_000) { _ in } }

    private static let twoThreads = both(
        "post to one observer from two threads at once, elapsed time", 1_000_000, .elapsed
    ) { postFromTwoThreads($0, 1_000_000) }

    /// What goes by says little where other programs want the processors, too.
    private static let twoThreadsProcessor = both(
        "post to one observer from two threads at once, processor time", 200_000
    ) { postFromTwoThreads($0, 200_000) }

    /// Each posts half of them, to an observer of its own.
    private static func postFromTwoThreads(_ type: any Center.Type, _ count: Int) -> () -> Void {
        let center = type.init()
        let names = [Notification.Name("left"), Notification.Name("right")]
        let counters = names.map { _ in Counter() }
        let tokens = zip(names, counters).map { name, counter in center.observe(name, nil) { counter.count += 1 } }
        return {
            let end = DispatchSemaphore(value: 0)
            for name in names {
                Thread {
                    let notification = Notification(name: name)
                    for _ in 0..<count / 2 { center.post(notification) }
                    end.signal()
                }.start()
            }
            for _ in names { end.wait() }
            for counter in counters { counter.check(count / 2) }
            withExtendedLifetime(tokens) {}
        }
    }

    private static let fanOut = both("post to 10,000 observers, for each of them", 1_000_000) { type in
        let center = type.init()
        let counter = Counter()
        let tokens = (0..<10_000).map { _ in center.observe(posted, nil) { counter.count += 1 } }
        let notification = Notification(name: posted)
        return {
            for _ in 0..<100 { center.post(notification) }
            counter.check(1_000_000)
            withExtendedLifetime(tokens) {}
        }
    }

    private static let addAlone = both("add and remove one observer, alone", 100_000) { type in
        add(to: type.init(), named: { _ in posted })
    }

    private static let addAmongOthers = both("add and remove one among 100,000 of other names", 100_000) { type in
        let center = type.init()
        let tokens = (0..<100_000).map { center.observe(Notification.Name("other \($0)"), nil) {} }
        let work = add(to: center, named: { _ in posted })
        return {
            work()
            withExtendedLifetime(tokens) {}
        }
    }

    private static let addOfSameName = both("add and remove one among 100,000 of the same name", 100_000) { type in
        let center = type.init()
        let tokens = (0..<100_000).map { _ in center.observe(posted, nil) {} }
        let work = add(to: center, named: { _ in posted })
        return {
            work()
            withExtendedLifetime(tokens) {}
        }
    }

    private static func add(
        to center: any Center, named name: @escaping @Sendable (Int) -> Notification.Name
    ) -> () -> Void {
        {
            for number in 0..<100_000 { center.unobserve(center.observe(name(number), nil) {}) }
        }
    }

    private static let amongOthers = both("post to one observer among 10,000 of other names", 200_000) {
        post($0, 200_000) { center in
            for number in 0..<10_000 { _ = center.observe(Notification.Name("other \(number)"), nil) {} }
        }
    }

    // Fewer: a center that looks at all of them takes long.
    private static let amongSenders = both("post to one observer among 10,000 of the name with other senders", 5_000) {
        let senders = (0..<10_000).map { _ in Sender() }
        let work = post($0, 5_000) { center in
            for sender in senders { _ = center.observe(posted, sender) {} }
        }
        return {
            work()
            withExtendedLifetime(senders) {}
        }
    }

    private static let addAndRemove = both("add and remove, 100,000 observers at once", 100_000) { type in
        {
            let center = type.init()
            let names = (0..<100).map { Notification.Name("\($0)") }
            let tokens = (0..<100_000).map { center.observe(names[$0 % 100], nil) {} }
            for token in tokens { center.unobserve(token) }
        }
    }

    private static func both(
        _ name: String, _ count: Int, _ time: Time = .processor,
        _ prepare: @escaping @Sendable (any Center.Type) -> () -> Void
    ) -> Work {
        Work(name: name, count: count, time: time, ours: { prepare(Ours.self) }, theirs: { prepare(Theirs.self) })
    }

    private static func post(
        _ type: any Center.Type, _ count: Int, others: (any Center) -> Void
    ) -> () -> Void {
        let center = type.init()
        others(center)
        let sender = Sender()
        let counter = Counter()
        let token = center.observe(posted, sender) { counter.count += 1 }
        let notification = Notification(name: posted, object: sender)
        return {
            for _ in 0..<count { center.post(notification) }
            counter.check(count)
            withExtendedLifetime(token) {}
        }
    }
}
