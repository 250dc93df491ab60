// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// The content of one ``NotificationQueue``: the waiting notifications of all threads, with the limits and the
/// coalescing.
///
/// A notification is also in the list of the ``QueuePump`` of the thread that enqueued it. Each of the two skips
/// notifications that the other has taken. ``close()`` drops all notifications with the queue; lists of pumps may
/// retain the store for a moment longer.
///
/// Threads: any.
final class QueueStore: Sendable {
    let center: any NotificationPosting
    private let limits: NotificationQueue.Limits
    private let state = Locked(State())

    fileprivate struct State {
        /// The notifications in the order of their enqueueing, with taken ones among them, which are skipped.
        var order = Deque<QueuedNotification>()
        /// The index for coalescing.
        var similar = SimilarNotifications()
        /// The number of waiting notifications, and their size in bytes.
        var count = 0
        var byteCount = 0
        /// The number of notifications lost to the limits.
        var lost: UInt64 = 0
        /// The same number, for the rate limit of the log.
        var timesLost: UInt64 = 0
    }

    init(_ center: any NotificationPosting, _ limits: NotificationQueue.Limits) {
        self.center = center
        self.limits = limits
    }

    /// The number of waiting notifications.
    var count: Int {
        state.withLock { $0.count }
    }

    var lost: UInt64 {
        state.withLock { $0.lost }
    }

    // MARK: Insertion

    /// The result of enqueueing a notification.
    enum Outcome {
        /// The notification waits; the caller passes it to the pump.
        case waits(QueuedNotification)
        /// The caller posts the notification at once.
        case isPostedNow
        /// The style is `now`, and the loop is in another mode.
        case isRefused
        /// The notification is larger than the size limit of the whole queue.
        case isLost
    }

    /// Enqueues a notification. It replaces similar waiting ones, and takes over the most urgent of their styles and
    /// all of their modes. If a limit is reached, the oldest notifications are dropped.
    func enqueue(
        _ notification: Notification, _ style: NotificationQueue.PostingStyle, _ modes: ModeSet,
        mask: NotificationQueue.NotificationCoalescing, pump: QueuePump
    ) -> Outcome {
        let size = style == .now ? 0 : PayloadSize.of(notification)
        let carried = CrossThreadBox(notification)
        // At most one notification is replaced in nearly all cases, which then allocates no array.
        var replaced: Removed?
        var (othersReplaced, dropped): ([Removed], [Removed]) = ([], [])
        let (outcome, lostCount) = state.withLock { state -> (Outcome, UInt64?) in
            let earlier = mask.isEmpty ? .init() : state.similar.find(carried.value, mask, among: state.order)
            var (style, modes) = (style, modes)
            // Sets of modes are shared objects, so equal ones are usually identical. A greater raw style is more
            // urgent.
            earlier.forEach { other in
                if other.modes !== modes { modes = .of(modes.modes.union(other.modes.modes)) }
                if other.style.rawValue > style.rawValue { style = other.style }
            }
            if style == .now, !pump.allows(modes) { return (.isRefused, nil) }
            replaced = earlier.newest.flatMap { state.take($0) }
            if !earlier.others.isEmpty { othersReplaced = earlier.others.compactMap { state.take($0) } }
            guard style != .now else { return (.isPostedNow, nil) }
            guard size <= limits.byteCount else { return (.isLost, state.lose(1)) }
            while state.count >= limits.count || state.byteCount + size > limits.byteCount {
                guard let oldest = state.order.popFirst() else { break }
                if let oldest = state.take(oldest) { dropped.append(oldest) }
            }
            let item = QueuedNotification(
                carried, style, modes, byteCount: size, pump: pump, store: self)
            state.insert(item)
            return (.waits(item), dropped.isEmpty ? nil : state.lose(UInt64(dropped.count)))
        }
        // The removed notifications are released after the lock, because a `deinit` of their content may use the queue.
        if let replaced { replaced.pump.noteTombstone(replaced.style) }
        Self.noteTombstones(othersReplaced)
        Self.noteTombstones(dropped)
        if let lostCount {
            Log.warning("a queue dropped notifications that were not posted in time (\(lostCount) so far)")
        }
        return outcome
    }

    // MARK: Removal

    /// A notification that was taken from the queue. It is released after the lock, because its sender may end with it
    /// and have a `deinit` that uses the queue.
    fileprivate struct Removed: Sendable {
        let notification: CrossThreadBox<Notification>
        let pump: QueuePump
        let style: NotificationQueue.PostingStyle
    }

    /// Posts a notification for the pump, unless it was taken before.
    func post(_ item: QueuedNotification) {
        guard let notification = state.withLock({ $0.take(item) })?.notification else { return }
        center.post(notification.value)
    }

    /// Removes similar notifications.
    func remove(similarTo notification: Notification, mask: NotificationQueue.NotificationCoalescing) {
        guard !mask.isEmpty else { return }
        let carried = CrossThreadBox(notification)
        let removed = state.withLock { state in
            var removed: [Removed] = []
            state.similar.find(carried.value, mask, among: state.order).forEach { item in
                if let one = state.take(item) { removed.append(one) }
            }
            return removed
        }
        Self.noteTombstones(removed)
    }

    /// Drops a notification that can't be posted any more, because its context is gone.
    ///
    /// - Returns: whether the notification was still waiting.
    func drop(_ item: QueuedNotification) -> Bool {
        let removed = state.withLock { $0.take(item) }
        return removed != nil
    }

    /// Ends the store with its queue: drops all notifications.
    ///
    /// - Returns: the number of notifications that were waiting.
    func close() -> Int {
        let removed = state.withLock { state in
            let removed = state.order.compactMap { state.take($0) }
            state.order.removeAll()
            state.similar = SimilarNotifications()
            return removed
        }
        Self.noteTombstones(removed)
        return removed.count
    }

    /// Informs the pumps that their lists contain taken notifications.
    private static func noteTombstones(_ removed: [Removed]) {
        for one in removed { one.pump.noteTombstone(one.style) }
    }
}

extension QueueStore.State {
    /// Adds a waiting notification.
    fileprivate mutating func insert(_ item: QueuedNotification) {
        order.append(item)
        count += 1
        byteCount += item.byteCount
        similar.insert(item)
        // Taken notifications are removed from the list when they are the majority, so that the memory is proportional
        // to the number of waiting ones.
        if order.count > 64, order.count > 2 * count { order.removeAll { $0.isGone } }
    }

    /// Takes a notification out of the queue; nil when it was taken before.
    fileprivate mutating func take(_ item: QueuedNotification) -> QueueStore.Removed? {
        guard let notification = item.take() else { return nil }
        count -= 1
        byteCount -= item.byteCount
        while let first = order.first, first.isGone { order.popFirst() }
        if count == 0 { similar.releaseLargeTables() }
        return QueueStore.Removed(notification: CrossThreadBox(notification), pump: item.pump, style: item.style)
    }

    /// Counts losses.
    ///
    /// - Returns: the number of losses so far if a log message is due; otherwise nil.
    fileprivate mutating func lose(_ number: UInt64) -> UInt64? {
        lost += number
        return Log.throttle(&timesLost, times: number)
    }
}
