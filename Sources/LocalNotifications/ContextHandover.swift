// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// A post on its way to observers on main contexts: what they have in common is made when the first of them needs it.
///
/// An object, as most posts have none: then it costs them a word.
final class ContextHandover {
    private let notification: Notification
    private var carried: Carried<Notification>?
    /// What is kept for each context, once for all its observers.
    private var payloads: [(delivery: ContextDelivery, payload: ContextDelivery.Payload)] = []

    init(of notification: Notification) {
        self.notification = notification
    }

    /// - Returns: false when there is nobody any more who could be called.
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
    /// The same without the sender if that is an object that ends at this moment: it may be used until its `deinit`
    /// returns, and by nobody after.
    var withoutEndingSender: Notification {
        guard let sender = LocalNotifications.Sender(object).object, isEnding(sender) else { return self }
        return Notification(name: name, object: nil, userInfo: userInfo)
    }
}
