// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation
import LocalNotifications

/// What both queues have.
private protocol Queue {
    /// A queue of a new center, which counts what it posts.
    init(counting counter: Counter)
    func enqueue(_ notification: Notification, _ style: Style, coalescing: Bool)
    /// Runs the thread's loop once.
    func turn()
}

private enum Style {
    case now
    case asap
    case whenIdle
}

private struct OurQueue: Queue {
    private let queue: LocalNotifications.NotificationQueue
    private let token: Any

    init(counting counter: Counter) {
        let center = LocalNotifications.NotificationCenter()
        queue = LocalNotifications.NotificationQueue(notificationCenter: center)
        token = center.observe(nil, nil) { counter.count += 1 }
    }

    func enqueue(_ notification: Notification, _ style: Style, coalescing: Bool) {
        let style: LocalNotifications.NotificationQueue.PostingStyle =
            switch style {
            case .now: .now
            case .asap: .asap
            case .whenIdle: .whenIdle
            }
        queue.enqueue(notification, postingStyle: style, coalesceMask: coalescing ? .onName : .none)
    }

    func turn() {
        MainContext.current.iterate(mayBlock: true)
    }
}

private final class TheirQueue: Queue {
    private let queue: Foundation.NotificationQueue
    private let token: Any
    /// Without a timer or an input the loop does not turn at all.
    private let timer = Timer(timeInterval: 3_600, repeats: false) { _ in }

    init(counting counter: Counter) {
        let center = Foundation.NotificationCenter()
        queue = Foundation.NotificationQueue(notificationCenter: center)
        token = center.observe(nil, nil) { counter.count += 1 }
        RunLoop.current.add(timer, forMode: .default)
    }

    deinit { timer.invalidate() }

    func enqueue(_ notification: Notification, _ style: Style, coalescing: Bool) {
        let style: Foundation.NotificationQueue.PostingStyle =
            switch style {
            case .now: .now
            case .asap: .asap
            case .whenIdle: .whenIdle
            }
        queue.enqueue(notification, postingStyle: style, coalesceMask: coalescing ? .onName : .none, forModes: nil)
    }

    func turn() {
        _ = RunLoop.current.run(mode: .default, before: Date())
    }
}

extension Work {
    /// Each style at several lengths of the queue.
    static let queueStyles: [Work] =
        [1, 20, 250, 500].flatMap { length in
            [
                both("enqueue now, \(length) at a time", 5_000, length) { queue($0, .now, length) },
                both("enqueue asap and deliver, \(length) at a time", 5_000, length) { queue($0, .asap, length) },
                both("enqueue when idle and deliver, \(length) at a time", 5_000, length) {
                    queue($0, .whenIdle, length)
                },
            ]
        } + [
            both("enqueue with coalescing on the name, 500 of 20 names at a time, and deliver", 5_000, 500) {
                queue($0, .asap, 500, names: 20)
            },
            both("enqueue with coalescing on the name, 20,000 of one name at a time, and deliver", 20_000, 20_000) {
                queue($0, .asap, 20_000, names: 1, count: 20_000)
            },
        ]

    private static func both(
        _ name: String, _ count: Int, _ length: Int,
        _ prepare: @escaping @Sendable (any Queue.Type) -> () -> Void
    ) -> Work {
        Work(
            name: name, count: count, ours: { prepare(OurQueue.self) }, theirs: { prepare(TheirQueue.self) })
    }

    /// A number of them in portions, each of which is delivered before the next; with names given so many of each arrive.
    private static func queue(
        _ type: any Queue.Type, _ style: Style, _ length: Int, names: Int? = nil, count: Int = 5_000
    ) -> () -> Void {
        let counter = Counter()
        let queue = type.init(counting: counter)
        let notifications = (0..<(names ?? 20)).map { Notification(name: Notification.Name("\($0)"), object: sender) }
        return {
            var expected = 0
            for _ in 0..<count / length {
                for number in 0..<length {
                    queue.enqueue(notifications[number % notifications.count], style, coalescing: names != nil)
                }
                expected += names ?? length
                while counter.count < expected { queue.turn() }
            }
            counter.check(expected)
        }
    }

    private static let sender = Sender()
}
