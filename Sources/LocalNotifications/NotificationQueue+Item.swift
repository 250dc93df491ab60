// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation
import Synchronization

/// A notification that waits in a queue.
///
/// It stands in a list of the pump of its context, which posts it, and in its queue, which may let it go before. Whoever
/// marks it as gone has it; the other passes over it.
final class QueuedNotification: @unchecked Sendable {
    // Sendable: the variables are touched only under the lock of its queue's store, or before anyone else sees it.

    /// Nil when it is gone.
    private var notification: Notification?
    let name: String
    let style: NotificationQueue.PostingStyle
    let modes: ModeSet
    /// About how much memory it keeps.
    let byteCount: Int
    let pump: QueuePump
    let store: QueueStore
    private let gone = Atomic(false)

    init(
        _ notification: Carried<Notification>, _ style: NotificationQueue.PostingStyle, _ modes: ModeSet,
        byteCount: Int, pump: QueuePump, store: QueueStore
    ) {
        self.notification = notification.value
        name = notification.value.name.rawValue
        self.style = style
        self.modes = modes
        self.byteCount = byteCount
        self.pump = pump
        self.store = store
    }

    var isGone: Bool {
        gone.load(ordering: .acquiring)
    }

    /// Under the lock of the store.
    ///
    /// - Returns: the notification; nil when it is gone already.
    func take() -> Notification? {
        guard !isGone else { return nil }
        gone.store(true, ordering: .releasing)
        defer { notification = nil }
        return notification
    }

    /// The sender as it is compared. Under the lock of the store.
    var sender: Sender {
        Sender(notification?.object)
    }
}
