import Foundation
import MainLoop
import NotificationWire
import Synchronization

/// What the center tells the program about itself.
extension DistributedNotificationCenter {
    /// Has `handler` called with everything that the program should know about the center: that notifications may have
    /// been missed, that there is no service, that something was refused.
    ///
    /// The same is logged, and gaps and changes of the connection are also posted as local notifications
    /// (`Notification.Name.distributedNotificationsMayHaveBeenMissed`,
    /// `.distributedNotificationCenterStateDidChange`).
    ///
    /// - Parameter handler: called where observers run by default.
    /// - Returns: what ends it when it goes away.
    public func observeEvents(_ handler: @escaping @Sendable (Event) -> Void) -> Observation {
        let number = state.withLock { state in
            state.lastEventHandler += 1
            state.eventHandlers[state.lastEventHandler] = handler
            return state.lastEventHandler
        }
        return Observation { [weak self] in
            self?.state.withLock { _ = $0.eventHandlers.removeValue(forKey: number) }
        }
    }

    /// Threads: any; called with no lock held.
    func report(_ event: Event) {
        let handlers = state.withLock { $0.eventHandlers.sorted { $0.key < $1.key }.map(\.value) }
        let notification = localNotification(for: event)
        guard !handlers.isEmpty || notification != nil else { return }
        let center = self
        _ = target(for: nil).deliver(byteCount: 256) {
            for handler in handlers { handler(event) }
            if let notification {
                NotificationCenter.default.post(
                    name: notification.name, object: center, userInfo: [notification.key: notification.value])
            }
        }
    }

    private func localNotification(
        for event: Event
    ) -> (name: Foundation.Notification.Name, key: String, value: any Sendable)? {
        switch event {
        case .mayHaveMissedNotifications(let gap): (.distributedNotificationsMayHaveBeenMissed, "gap", gap)
        case .connectionStateChanged(let state): (.distributedNotificationCenterStateDidChange, "state", state)
        case .suspensionChanged, .observerRefused, .postFailed: nil
        }
    }
}

/// What arrives on the bus thread, handed on.
final class CenterReceiver: ServiceReceiver {
    // Weak: the center owns the bus thread, which owns this.
    private let reference = Mutex(WeakCenter())

    private struct WeakCenter {
        weak var center: DistributedNotificationCenter?
    }

    var center: DistributedNotificationCenter? {
        get { reference.withLock { $0.center } }
        set { reference.withLock { $0.center = newValue } }
    }

    func received(_ signal: NotificationSignal, for keys: [RegistrationKey]) {
        center?.deliver(Received(signal: signal), for: keys)
    }

    func stateChanged(_ state: DistributedNotificationCenter.ConnectionState) {
        guard let center else { return }
        let isNew = center.state.withLock { old -> Bool in
            defer { old.connectionState = state }
            return old.connectionState != state
        }
        guard isNew else { return }
        switch state {
        case .disconnected(let reason): Log.warning("no connection to the bus: \(reason)")
        case .serviceUnavailable(let reason): Log.warning("no notification center on the bus: \(reason)")
        case .connecting, .connected: break
        }
        center.report(.connectionStateChanged(state))
    }

    func mayHaveMissed(_ gap: DistributedNotificationCenter.Gap) {
        guard let center else { return }
        switch gap {
        case .missing(let count), .dropped(let count, _): center.count { $0.missed += count }
        case .serviceChanged, .overflow, .undecodable: break
        }
        Log.notice("distributed notifications may have been missed: \(gap)")
        center.report(.mayHaveMissedNotifications(gap))
    }

    func lostPost(because error: DistributedNotificationError) {
        center?.noteFailedPost(error)
    }

    func registrationRefused(_ key: RegistrationKey, because error: DistributedNotificationError) {
        center?.noteRefusedObserver(
            name: key.name.map { .init($0.text) }, object: key.object?.text, error)
    }

    func suspensionChanged(_ isSuspended: Bool, cause: String) {
        guard let center else { return }
        center.state.withLock { $0.suspendedByService = isSuspended }
        center.report(.suspensionChanged(isSuspended: isSuspended, cause: cause))
    }
}
