import Foundation
import LocalNotifications
import MainLoop

/// One row: the same work for both.
struct Work: Sendable {
    let name: String
    /// How many times it is done.
    let count: Int
    let ours: @Sendable () -> () -> Void
    let theirs: @Sendable () -> () -> Void

    static let all = [oneObserver, amongOthers, amongSenders, addAndRemove, coalescing]
}

/// What both centers have.
private protocol Center: AnyObject {
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

private final class Sender: Sendable {}

/// Counts what arrives; one thread posts.
private final class Counter: @unchecked Sendable {
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
        _ name: String, _ count: Int, _ prepare: @escaping @Sendable (any Center.Type) -> () -> Void
    ) -> Work {
        Work(name: name, count: count, ours: { prepare(Ours.self) }, theirs: { prepare(Theirs.self) })
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

    // MARK: The queue

    /// Ten rounds of 500, of 20 names: in each, 20 arrive. Foundation's queue takes
    /// very long with more, and coalesces no senders.
    private static let coalescing = Work(
        name: "enqueue with coalescing on the name, 500 of 20 names at a time, and deliver", count: 5_000,
        ours: {
            let (center, counter) = (Ours(), Counter())
            let queue = LocalNotifications.NotificationQueue(notificationCenter: center)
            let token = center.observe(nil, nil) { counter.count += 1 }
            return {
                for round in 1...10 {
                    enqueue { queue.enqueue($0, postingStyle: .asap, coalesceMask: .onName) }
                    while counter.count < 20 * round { MainContext.current.iterate(mayBlock: true) }
                }
                counter.check(200)
                withExtendedLifetime(token) {}
            }
        },
        theirs: {
            let (center, counter) = (Theirs(), Counter())
            let queue = Foundation.NotificationQueue(notificationCenter: center)
            let token = center.observe(nil, nil) { counter.count += 1 }
            // Without a timer or an input it does not turn at all.
            let timer = Timer(timeInterval: 3_600, repeats: false) { _ in }
            RunLoop.current.add(timer, forMode: .default)
            return {
                defer { timer.invalidate() }
                for round in 1...10 {
                    enqueue {
                        queue.enqueue($0, postingStyle: .asap, coalesceMask: .onName, forModes: nil)
                    }
                    while counter.count < 20 * round {
                        _ = RunLoop.current.run(mode: .default, before: Date())
                    }
                }
                counter.check(200)
                withExtendedLifetime(token) {}
            }
        })

    private static func enqueue(_ enqueue: (Notification) -> Void) {
        let notifications = (0..<20).map { Notification(name: Notification.Name("\($0)"), object: counterSender) }
        for number in 0..<500 { enqueue(notifications[number % 20]) }
    }

    private static let counterSender = Sender()
}
