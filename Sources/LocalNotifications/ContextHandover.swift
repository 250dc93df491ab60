// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// The delivery of one post to its observers on main contexts. It contains the data that these observers share, which
/// is created when the first of them needs it.
///
/// `NotificationCenter.post` creates it for the first such observer. It is a class, so that a post without such
/// observers pays for one nil pointer only.
final class ContextHandover {
    private let notification: Notification
    private var carried: CrossThreadBox<Notification>?
    /// The memory that the notification takes in the queue of each context. A queue counts it once for all observers of
    /// the post.
    private var payloads: [(delivery: ContextDelivery, payload: ContextDelivery.Payload)] = []

    init(of notification: Notification) {
        self.notification = notification
    }

    /// Queues a call of an observer on the thread of its context.
    ///
    /// - Returns: false when the observer's target or the context is gone, so that the registration can be removed.
    func append(_ registration: Registration, to delivery: ContextDelivery, in modes: ModeSet) -> Bool {
        if let target = registration.target, target.isOver { return false }
        let carried = self.carried ?? CrossThreadBox(notification.withoutEndingSender)
        self.carried = carried
        let payload = payload(for: delivery, carried.value)
        return delivery.append(byteCount: PayloadSize.ofEntry, payload: payload, in: modes) {
            registration.call(carried.value)
        }
    }

    /// Returns the shared memory count of the post for a context.
    private func payload(for delivery: ContextDelivery, _ notification: Notification) -> ContextDelivery.Payload {
        if let known = payloads.first(where: { $0.delivery === delivery }) { return known.payload }
        let payload = ContextDelivery.Payload(byteCount: PayloadSize.of(notification))
        payloads.append((delivery, payload))
        return payload
    }
}

extension Notification {
    /// The same notification for a later delivery. A sender whose `deinit` has begun is left out, because the object is
    /// invalid after its `deinit`, even if the notification still refers to it.
    var withoutEndingSender: Notification {
        guard let sender = LocalNotifications.Sender(object).object, isEnding(sender) else { return self }
        return Notification(name: name, object: nil, userInfo: userInfo)
    }
}
