// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// The waiting notifications of one queue, from all threads.
///
/// The store ends with its queue, and so do its waiting notifications; pumps may hold remains of it for a moment
/// longer.
///
/// Threads: any.
final class QueueStore: Sendable {
    let center: any NotificationPosting
    private let limits: NotificationQueue.Limits
    private let state = Locked(State())

    fileprivate struct State {
        /// The notifications in the order of their enqueueing; removed ones are skipped.
        var order = Deque<QueuedNotification>()
        var similar = SimilarNotifications()
        var count = 0
        var byteCount = 0
        var lost: UInt64 = 0
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

    enum Outcome {
        case waits(QueuedNotification)
        case isPostedNow
        /// The style is `now`, and the loop is in another mode.
        case isRefused
        /// The notification is larger than the whole space.
        case isLost
    }

    /// Enqueues a notification, which replaces similar ones.
    func enqueue(
        _ notification: Notification, _ style: NotificationQueue.PostingStyle, _ modes: ModeSet,
        mask: NotificationQueue.NotificationCoalescing, pump: QueuePump
    ) -> Outcome {
        let size = style == .now ? 0 : PayloadSize.of(notification)
        let carried = Carried(notification)
        // Nearly always one notification at most.
        var replaced: Removed?
        var (othersReplaced, dropped): ([Removed], [Removed]) = ([], [])
        let (outcome, told) = state.withLock { state -> (Outcome, UInt64?) in
            let earlier = mask.isEmpty ? .init() : state.similar.find(carried.value, mask, among: state.order)
            var (style, modes) = (style, modes)
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
        // The removed notifications are released here, and may run code of their own.
        if let replaced { replaced.pump.hasHole(replaced.style) }
        Self.leaveHoles(othersReplaced)
        Self.leaveHoles(dropped)
        if let told {
            Log.warning("a queue dropped notifications that were not posted in time (\(told) so far)")
        }
        return outcome
    }

    // MARK: Removal

    /// A removed notification. It is released after the lock, because its sender may end with it.
    fileprivate struct Removed: Sendable {
        let notification: Carried<Notification>
        let pump: QueuePump
        let style: NotificationQueue.PostingStyle
    }

    /// Posts a notification, unless it is gone.
    func post(_ item: QueuedNotification) {
        guard let notification = state.withLock({ $0.take(item) })?.notification else { return }
        center.post(notification.value)
    }

    /// Removes similar notifications.
    func remove(similarTo notification: Notification, mask: NotificationQueue.NotificationCoalescing) {
        guard !mask.isEmpty else { return }
        let carried = Carried(notification)
        let removed = state.withLock { state in
            var removed: [Removed] = []
            state.similar.find(carried.value, mask, among: state.order).forEach { item in
                if let one = state.take(item) { removed.append(one) }
            }
            return removed
        }
        Self.leaveHoles(removed)
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
        Self.leaveHoles(removed)
        return removed.count
    }

    private static func leaveHoles(_ removed: [Removed]) {
        for one in removed { one.pump.hasHole(one.style) }
    }
}

extension QueueStore.State {
    fileprivate mutating func insert(_ item: QueuedNotification) {
        order.append(item)
        count += 1
        byteCount += item.byteCount
        similar.insert(item)
        // A list in which most notifications are gone is shortened, so that coalescing keeps only the memory of waiting
        // ones.
        if order.count > 64, order.count > 2 * count { order.removeAll { $0.isGone } }
    }

    fileprivate mutating func take(_ item: QueuedNotification) -> QueueStore.Removed? {
        guard let notification = item.take() else { return nil }
        count -= 1
        byteCount -= item.byteCount
        while let first = order.first, first.isGone { order.popFirst() }
        if count == 0 { similar.forgetTheGone() }
        return QueueStore.Removed(notification: Carried(notification), pump: item.pump, style: item.style)
    }

    /// - Returns: the number of losses so far, if a message about them is due.
    fileprivate mutating func lose(_ number: UInt64) -> UInt64? {
        lost += number
        return Log.throttle(&timesLost, times: number)
    }
}
