// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// The center that a ``NotificationQueue`` posts to: a center of this module, the distributed center, Foundation's, or
/// the program's own.
public typealias NotificationPosting = CarillonThreadDelivery.NotificationPosting

extension NotificationCenter: NotificationPosting {}

/// A first-in, first-out buffer of notifications for a center (part Q). It posts them at the end of the current
/// iteration of the thread's GLib loop, or when that loop is idle. Similar notifications are coalesced into the newest.
///
/// The class is used like Foundation's class of the same name, which needs a `RunLoop` and never posts under GLib's
/// loop.
///
/// A notification is posted on the thread that enqueued it, through that thread's `MainContext.current`, which the
/// thread must run. When that context ends, its waiting notifications are dropped, and the number of them is logged.
/// `DeliveryQueue.Limits.standard` bounds the notifications that no loop posts in time. Beyond that limit the oldest
/// are discarded, counted in ``lost`` and logged (T2).
///
/// Threads: any. Coalescing covers the whole queue: when a notification replaces one from another thread, it is posted
/// on the thread that enqueued the replacement. No lock is held while observers run.
///
/// The queue lives as long as the program holds it. Waiting notifications do not hold the queue, and are dropped with
/// it.
open class NotificationQueue: NSObject, @unchecked Sendable {
    // Sendable: the mutable state is locked. Subclasses must protect their own.

    /// The time at which a notification is posted (Q2).
    public enum PostingStyle: UInt, Sendable {
        /// When the loop is idle: no timer, no other event and nothing of this module is ready. One notification is
        /// posted at a time, so that events that become ready meanwhile run first.
        case whenIdle = 1
        /// At the end of the current iteration of the loop: after the callbacks that are due with this one, and before
        /// the events that the next iteration finds.
        case asap = 2
        /// At once, before `enqueue(_:postingStyle:coalesceMask:forModes:)` returns.
        case now = 3
    }

    /// The properties that make two notifications similar (Q3).
    public struct NotificationCoalescing: OptionSet, Sendable {
        public let rawValue: UInt

        public init(rawValue: UInt) {
            self.rawValue = rawValue
        }

        /// No property: each notification is posted.
        public static let none: NotificationCoalescing = []
        /// The same name.
        public static let onName = NotificationCoalescing(rawValue: 1)
        /// The same sender: the same object, an equal value, or no sender on both sides.
        public static let onSender = NotificationCoalescing(rawValue: 2)
    }

    /// The limits of waiting notifications, in number and bytes.
    typealias Limits = DeliveryQueue.Limits

    /// The queue of the calling thread, for ``NotificationCenter/default``. It ends with the thread.
    open class var `default`: NotificationQueue {
        if let queue = threadsQueue.value { return queue }
        let queue = NotificationQueue(notificationCenter: NotificationCenter.default)
        threadsQueue.value = queue
        return queue
    }

    /// The default queue of each thread.
    private static let threadsQueue = ThreadLocal<NotificationQueue>()

    /// The waiting notifications. Pumps may refer to it for a moment after the end of the queue.
    private let store: QueueStore

    /// Creates another queue, which lasts as long as the program holds it.
    ///
    /// - Parameter notificationCenter: the center that the queue posts to.
    public required init(notificationCenter: NotificationCenter) {
        store = QueueStore(notificationCenter, .standard)
    }

    /// Creates a queue for the distributed center, Foundation's, or the program's own.
    public init(notificationCenter: any NotificationPosting) {
        store = QueueStore(notificationCenter, .standard)
    }

    /// Creates a queue for the default center of the process.
    public convenience override init() {
        self.init(notificationCenter: NotificationCenter.default)
    }

    deinit {
        let count = store.close()
        if count > 0 { Log.notice("\(count) notifications were dropped with their queue") }
    }

    /// The class of the queue and the number of waiting notifications.
    open override var description: String {
        "<\(type(of: self)): \(Unmanaged.passUnretained(self).toOpaque()), \(store.count) waiting>"
    }

    open override var debugDescription: String { description }

    /// The number of notifications that were lost since the queue was created, because no loop posted them in time
    /// (T2).
    public var lost: UInt64 { store.lost }

    // MARK: Enqueueing

    /// Enqueues a notification, coalesced on name and sender, for the default mode.
    open func enqueue(_ notification: Notification, postingStyle: PostingStyle) {
        enqueue(notification, postingStyle, [.onName, .onSender], .ofDefault)
    }

    /// Enqueues a notification.
    ///
    /// The queue removes earlier similar notifications. The new one takes over the most urgent of their styles and all
    /// of their modes.
    ///
    /// - Parameters:
    ///   - coalesceMask: the properties that make an earlier notification similar to this one.
    ///   - modes: the modes of the loop in which the notification may be posted; in others it waits. Nil or no modes
    ///     means the default mode. With ``PostingStyle/now`` and the loop in another mode, the notification is not
    ///     posted, which is logged, and the queue does not change.
    public func enqueue(
        _ notification: Notification, postingStyle: PostingStyle, coalesceMask: NotificationCoalescing,
        forModes modes: [RunLoopMode]? = nil
    ) {
        let set: ModeSet = if let modes, !modes.isEmpty { .of(Set(modes)) } else { .ofDefault }
        enqueue(notification, postingStyle, coalesceMask, set)
    }

    /// Enqueues a notification with Foundation's modes, which `RunLoopMode.init(_:)` translates.
    @_disfavoredOverload
    open func enqueue(
        _ notification: Notification, postingStyle: PostingStyle, coalesceMask: NotificationCoalescing,
        forModes modes: [RunLoop.Mode]?
    ) {
        enqueue(
            notification, postingStyle: postingStyle, coalesceMask: coalesceMask,
            forModes: modes.map { $0.map { RunLoopMode($0) } })
    }

    /// Enqueues a notification and has it posted according to the outcome.
    private func enqueue(
        _ notification: Notification, _ style: PostingStyle, _ mask: NotificationCoalescing, _ modes: ModeSet
    ) {
        precondition(!notification.name.rawValue.isEmpty, "a notification's name must not be empty")
        // The pump posts notifications on the calling thread's main context.
        let pump = QueuePump.current
        // A waiting notification must not refer to a sender whose `deinit` has begun.
        let notification = style == .now ? notification : notification.withoutEndingSender
        switch store.enqueue(notification, style, modes, mask: mask, pump: pump) {
        case .waits(let item): pump.append(item)
        case .isPostedNow: store.center.post(notification)
        case .isLost: break
        case .isRefused:
            Log.warning(
                "a notification of the style now was not posted, because the loop is in the mode "
                    + "\(MainContext.current.currentMode)",
                ["CARILLON_NOTIFICATION": notification.name.rawValue])
        }
    }

    /// Removes similar notifications without posting them.
    ///
    /// - Parameter coalesceMask: the properties that make notifications similar; with ``NotificationCoalescing/none``
    ///   none are removed.
    open func dequeueNotifications(matching notification: Notification, coalesceMask: NotificationCoalescing) {
        store.remove(similarTo: notification, mask: coalesceMask)
    }
}
