// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// The handover of one post to observers on main contexts. The data that these observers share is created when the
/// first of them needs it.
///
/// A class, because most posts have no such observer: then the handover costs them one pointer.
final class ContextHandover {
    private let notification: Notification
    private var carried: Carried<Notification>?
    /// The memory that the post keeps for each context, counted once for all its observers.
    private var payloads: [(delivery: ContextDelivery, payload: ContextDelivery.Payload)] = []

    init(of notification: Notification) {
        self.notification = notification
    }

    /// - Returns: false when the target or the context is gone, so that nothing can be called any more.
    func append(_ registration: Registration, to delivery: ContextDelivery, in modes: ModeSet) -> Bool {
        if let target = registration.target, target.isOver { return false }
        let carried = self.carried ?? Carried(notification.withoutEndingSender)
        self.carried = carried
        let payload = payload(for: delivery, carried.value)
        return delivery.append(byteCount: PayloadSize.ofEntry, payload: payload, in: modes) {
            registration.call(carried.value)
        }
    }

    private func payload(for delivery: ContextDelivery, _ notification: Notification) -> ContextDelivery.Payload {
        if let known = payloads.first(where: { $0.delivery === delivery }) { return known.payload }
        let payload = ContextDelivery.Payload(byteCount: PayloadSize.of(notification))
        payloads.append((delivery, payload))
        return payload
    }
}

extension Notification {
    /// The same notification, without its sender if that is an object whose `deinit` has begun. Such an object may be
    /// used until its `deinit` returns, and not afterwards.
    var withoutEndingSender: Notification {
        guard let sender = LocalNotifications.Sender(object).object, isEnding(sender) else { return self }
        return Notification(name: name, object: nil, userInfo: userInfo)
    }
}
