// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonWire

/// Delivery from the bus thread to the observers.
extension DistributedNotificationCenter {
    /// Threads: the bus thread.
    func deliver(_ notification: ArrivedNotification, for keys: [RegistrationKey]) {
        let observers = state.withLock { state in
            state.statistics.received += 1
            return state.observers.observers(of: keys)
        }
        let received = Received(notification, isShared: observers.count > 1)
        // Each observer may have a thread of its own. Observers of one thread keep this order.
        for observer in observers {
            let lost = observer.target.deliver(byteCount: received.byteCount) { [weak self] in
                if !observer.call(with: received) { self?.removeDeadObservers() }
            }
            noteOverflow(lost)
        }
    }
}
