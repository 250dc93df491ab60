import Foundation
import MainLoop

/// Buffers notifications for a center (part Q): first in, first out; posted at the end of the current iteration of the
/// thread's GLib loop or when that has nothing else to do; similar ones coalesced into the newest.
///
/// It is used like Foundation's class of the same name, which needs a `RunLoop`, and never posts under GLib's.
///
/// A notification is posted on the thread where it was enqueued, through that thread's `MainContext.current`, which
/// has to be run there. When that context ends, what waits for it is dropped, and that is logged.
///
/// Threads: all members from any thread. Coalescing goes over the whole queue: what was enqueued on another thread and
/// is replaced will be posted on this one. No lock is held while observers run.
///
/// The queue lives as long as somebody holds it; what waits does not hold it, and goes with it.
public final class NotificationQueue: Sendable {
    /// When a notification is posted (Q2).
    public enum PostingStyle: UInt, Sendable {
        /// When the loop has nothing else to do: no timer and no other event is ready. One notification at a time, so
        /// that what became ready meanwhile goes first.
        case whenIdle = 1
        /// At the end of the current iteration of the loop: behind the callbacks that are due with this one, and ahead
        /// of what the next iteration finds.
        case asap = 2
        /// At once, before ``NotificationQueue/enqueue(_:postingStyle:coalesceMask:forModes:)`` returns.
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

    /// The calling thread's queue, for ``NotificationCenter/default``. It ends with the thread.
    public static var `default`: NotificationQueue {
        if let queue = threadsQueue.value { return queue }
        let queue = NotificationQueue(notificationCenter: NotificationCenter.default)
        threadsQueue.value = queue
        return queue
    }

    private static let threadsQueue = ThreadLocal<NotificationQueue>()

    private let center: any NotificationPosting
    private let state = Locked(NotificationQueueState())

    /// Another queue, which lasts as long as somebody holds it.
    ///
    /// - Parameter notificationCenter: where it posts: a center of this module or Foundation's.
    public init(notificationCenter: any NotificationPosting) {
        center = notificationCenter
    }

    deinit {
        let count = state.withLock { $0.count }
        if count > 0 { Log.notice("\(count) notifications were dropped with the queue in which they waited") }
    }

    // MARK: Enqueueing

    /// Enqueues a notification, coalesced on name and sender, for the default mode.
    public func enqueue(_ notification: Notification, postingStyle: PostingStyle) {
        enqueue(notification, postingStyle: postingStyle, coalesceMask: [.onName, .onSender], forModes: nil)
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
        precondition(!notification.name.rawValue.isEmpty, "a notification's name is not empty")
        let modes: Set<RunLoopMode> = modes.map { $0.isEmpty ? [.default] : Set($0) } ?? [.default]
        let context = MainContext.current
        let home = QueuePump.of(context)
        let item = QueuedNotification(notification, postingStyle, modes)
        let outcome = state.withLock { state in
            state.enqueue(item, mask: coalesceMask, home: home.id) { home.allows($0) }
        }
        withExtendedLifetime(outcome.replaced) {}
        if outcome.isPostedNow {
            center.post(notification)
        } else if let queued = outcome.queued {
            home.enqueued(queued, in: self, on: context)
        } else {
            Log.warning(
                "a notification of the style now was not posted, as the loop is in the mode \(context.currentMode)",
                ["CARILLON_NOTIFICATION": notification.name.rawValue])
        }
    }

    /// Removes similar notifications without posting them.
    ///
    /// - Parameter coalesceMask: what makes them similar; with ``NotificationCoalescing/none`` nothing is.
    public func dequeueNotifications(matching notification: Notification, coalesceMask: NotificationCoalescing) {
        let item = QueuedNotification(notification, .whenIdle, [])
        let removed = state.withLock { $0.removeSimilar(to: item, mask: coalesceMask) }
        withExtendedLifetime(removed) {}
    }

    // MARK: The pump's

    /// The number of the first notification that waits for `home` and may be posted in its mode now.
    func next(_ style: PostingStyle, home: QueuePump, before limit: UInt64 = .max) -> UInt64? {
        state.withLock { $0.next(style, home: home.id, before: limit) { home.allows($0) } }
    }

    /// Posts a notification, unless it went meanwhile.
    func post(_ number: UInt64) {
        guard let item = state.withLock({ $0.take(number) }) else { return }
        center.post(item.notification)
    }

    /// Whether anything waits for a context.
    func hasWork(for home: QueuePump.ID) -> Bool {
        state.withLock { $0.hasWork(for: home) }
    }

    /// Whether anything of a style waits for a context with just these modes.
    func hasWork(_ style: PostingStyle, for home: QueuePump.ID, modes: Set<RunLoopMode>) -> Bool {
        state.withLock { $0.hasWork(style, for: home, modes: modes) }
    }

    /// Drops what waits for a context that is gone.
    func contextEnded(_ home: QueuePump.ID) {
        let dropped = state.withLock { $0.removeAll(of: home) }
        guard !dropped.isEmpty else { return }
        Log.warning("\(dropped.count) notifications were not posted, as the context that they waited for is gone")
    }
}
