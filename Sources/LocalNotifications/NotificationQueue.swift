// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// The center that a ``NotificationQueue`` posts to: one of this module, the distributed one, Foundation's, or one of the program's
/// own.
public typealias NotificationPosting = CarillonThreadDelivery.NotificationPosting

extension NotificationCenter: NotificationPosting {}

/// Buffers notifications for a center (part Q): first in, first out; posted at the end of the current iteration of the
/// thread's GLib loop or when that has nothing else to do; similar ones coalesced into the newest.
///
/// It is used like Foundation's class of the same name, which needs a `RunLoop`, and never posts under GLib's.
///
/// A notification is posted on the thread where it was enqueued, through that thread's `MainContext.current`, which
/// has to be run there. When that context ends, what waits for it is dropped, and that is logged. What no loop posts in
/// time is bounded by `DeliveryQueue.Limits.standard`: over that the oldest go, counted in ``lost`` and logged (T2).
///
/// Threads: all members from any thread. Coalescing goes over the whole queue: what was enqueued on another thread and
/// is replaced will be posted on this one. No lock is held while observers run.
///
/// The queue lives as long as somebody holds it; what waits does not hold it, and goes with it.
open class NotificationQueue: NSObject, @unchecked Sendable {
    // Sendable: what changes is locked. Subclasses have to see to theirs.

    /// When a notification is posted (Q2).
    public enum PostingStyle: UInt, Sendable {
        /// When the loop has nothing else to do: no timer and no other event is ready, and nothing of this module. One
        /// notification at a time, so that what became ready meanwhile goes first.
        case whenIdle = 1
        /// At the end of the current iteration of the loop: behind the callbacks that are due with this one, and ahead
        /// of what the next iteration finds.
        case asap = 2
        /// At once, before `enqueue(_:postingStyle:coalesceMask:forModes:)` returns.
        case now = 3
    }

    /// What makes two notifications similar (Q3).
    public struct NotificationCoalescing: OptionSet, Sendable {
        public let rawValue: UInt

        public init(rawValue: UInt) {
            self.rawValue = rawValue
        }

        /// Nothing: each is posted.
        public static let none: NotificationCoalescing = []
        /// The same name.
        public static let onName = NotificationCoalescing(rawValue: 1)
        /// The same sender: the same object, an equal value, or none on both sides.
        public static let onSender = NotificationCoalescing(rawValue: 2)
    }

    /// How much may wait: see `DeliveryQueue.Limits`.
    typealias Limits = DeliveryQueue.Limits

    /// The calling thread's queue, for ``NotificationCenter/default``. It ends with the thread.
    open class var `default`: NotificationQueue {
        if let queue = threadsQueue.value { return queue }
        let queue = NotificationQueue(notificationCenter: NotificationCenter.default)
        threadsQueue.value = queue
        return queue
    }

    private static let threadsQueue = ThreadLocal<NotificationQueue>()

    private let store: QueueStore

    /// Another queue, which lasts as long as somebody holds it.
    ///
    /// - Parameter notificationCenter: where it posts.
    public required init(notificationCenter: NotificationCenter) {
        store = QueueStore(notificationCenter, .standard)
    }

    /// The same for the distributed center, Foundation's, or one of the program's own.
    public init(notificationCenter: any NotificationPosting) {
        store = QueueStore(notificationCenter, .standard)
    }

    /// The same for the process's center.
    public convenience override init() {
        self.init(notificationCenter: NotificationCenter.default)
    }

    deinit {
        let count = store.close()
        if count > 0 { Log.notice("\(count) notifications were dropped with the queue in which they waited") }
    }

    /// Names the class and how many notifications wait.
    open override var description: String {
        "<\(type(of: self)): \(Unmanaged.passUnretained(self).toOpaque()), \(store.count) waiting>"
    }

    open override var debugDescription: String { description }

    /// How many notifications were lost since the queue was made, because no loop posted them in time (T2).
    public var lost: UInt64 { store.lost }

    // MARK: Enqueueing

    /// Enqueues a notification, coalesced on name and sender, for the default mode.
    open func enqueue(_ notification: Notification, postingStyle: PostingStyle) {
        enqueue(notification, postingStyle, [.onName, .onSender], .ofDefault)
    }

    /// Enqueues a notification.
    ///
    /// Earlier ones that are similar go, and this one takes over the most urgent of their styles and all of their
    /// modes.
    ///
    /// - Parameters:
    ///   - coalesceMask: what makes an earlier notification similar to this one.
    ///   - modes: the modes of the loop in which it may be posted; in others it waits. Nil or none = the default mode.
    ///     With ``PostingStyle/now`` and the loop in another mode it is not posted, which is logged, and nothing
    ///     changes.
    public func enqueue(
        _ notification: Notification, postingStyle: PostingStyle, coalesceMask: NotificationCoalescing,
        forModes modes: [RunLoopMode]? = nil
    ) {
        let set: ModeSet = if let modes, !modes.isEmpty { .of(Set(modes)) } else { .ofDefault }
        enqueue(notification, postingStyle, coalesceMask, set)
    }

    /// The same with Foundation's modes, for which `RunLoopMode.init(_:)` says what they are here.
    @_disfavoredOverload
    open func enqueue(
        _ notification: Notification, postingStyle: PostingStyle, coalesceMask: NotificationCoalescing,
        forModes modes: [RunLoop.Mode]?
    ) {
        enqueue(
            notification, postingStyle: postingStyle, coalesceMask: coalesceMask,
            forModes: modes.map { $0.map { RunLoopMode($0) } })
    }

    private func enqueue(
        _ notification: Notification, _ style: PostingStyle, _ mask: NotificationCoalescing, _ modes: ModeSet
    ) {
        precondition(!notification.name.rawValue.isEmpty, "a notification's name is not empty")
        let pump = QueuePump.current
        let notification = style == .now ? notification : notification.withoutEndingSender
        switch store.enqueue(notification, style, modes, mask: mask, pump: pump) {
        case .waits(let item): pump.append(item)
        case .isPostedNow: store.center.post(notification)
        case .isLost: break
        case .isRefused:
            Log.warning(
                "a notification of the style now was not posted, as the loop is in the mode "
                    + "\(MainContext.current.currentMode)",
                ["CARILLON_NOTIFICATION": notification.name.rawValue])
        }
    }

    /// Removes similar notifications without posting them.
    ///
    /// - Parameter coalesceMask: what makes them similar; with ``NotificationCoalescing/none`` nothing is.
    open func dequeueNotifications(matching notification: Notification, coalesceMask: NotificationCoalescing) {
        store.remove(similarTo: notification, mask: coalesceMask)
    }
}
