// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonWire

/// Delivery from the bus thread to the observers.
extension DistributedNotificationCenter {
    /// Queues a received notification for each matching observer, on the observer's thread or queue.
    ///
    /// Threads: the bus thread.
    ///
    /// - Parameter keys: the registrations that the notification matched, according to the service.
    func deliver(_ notification: ArrivedNotification, for keys: [RegistrationKey]) {
        let observers = state.withLock { state in
            state.statistics.received += 1
            return state.observers.observers(of: keys)
        }
        let received = ReceivedNotification(notification, isShared: observers.count > 1)
        // Observers may have different threads. Observers of the same thread are called in this order.
        for observer in observers {
            let lost = observer.target.deliver(byteCount: received.byteCount) { [weak self] in
                if !observer.call(with: received) { self?.removeDeadObservers() }
            }
            noteOverflow(lost)
        }
    }
}
