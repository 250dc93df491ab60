// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation
import Synchronization

/// A notification that waits in a ``NotificationQueue``.
///
/// Two lists refer to it: that of its queue (``QueueStore``), which may remove it, and that of its thread's
/// ``QueuePump``, which posts it. The first of the two that takes the notification marks it as gone. The other list
/// then skips it, so that no removal has to search the second list.
final class QueuedNotification: @unchecked Sendable {
    // Sendable: the variables are accessed only under the lock of its queue's store, or before other code sees the
    // object.

    /// Nil when the notification has been taken.
    private var notification: Notification?
    let name: String
    let style: NotificationQueue.PostingStyle
    let modes: ModeSet
    /// The approximate memory that it keeps, in bytes.
    let byteCount: Int
    /// The pump that posts it.
    let pump: QueuePump
    /// The queue that it belongs to.
    let store: QueueStore
    /// Whether the notification has been taken; readable without the lock.
    private let gone = Atomic(false)

    init(
        _ notification: CrossThreadBox<Notification>, _ style: NotificationQueue.PostingStyle, _ modes: ModeSet,
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

    /// Takes the notification, under the lock of the store.
    ///
    /// - Returns: the notification; nil when it was taken before.
    func take() -> Notification? {
        guard !isGone else { return nil }
        gone.store(true, ordering: .releasing)
        defer { notification = nil }
        return notification
    }

    /// The sender in its comparable form; read it under the lock of the store.
    var sender: Sender {
        Sender(notification?.object)
    }
}
