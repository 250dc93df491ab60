// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Dispatch
import Foundation

/// Events that the center reports to the program about itself.
extension DistributedNotificationCenter {
    /// Calls `handler` with every event of the center. Events report possibly missed notifications, the lack of a
    /// service, and refused posts, observers and details.
    ///
    /// All events are logged as well. Gaps and changes of the connection state are also posted as local notifications
    /// (`Notification.Name.distributedNotificationsMayHaveBeenMissed`, `.distributedNotificationCenterStateDidChange`).
    ///
    /// - Parameter handler: the closure, called on the default delivery thread or queue of observers.
    /// - Returns: the registration of the handler, which ends when this object is released.
    public func observeEvents(_ handler: @escaping @Sendable (Event) -> Void) -> Observation {
        let number = state.withLock { state in
            state.lastEventHandler += 1
            state.eventHandlers[state.lastEventHandler] = handler
            return state.lastEventHandler
        }
        return Observation { [weak self] in
            // Released with no lock held: the handler may retain objects whose `deinit` uses the center.
            let handler = self?.state.withLock { $0.eventHandlers.removeValue(forKey: number) }
            withExtendedLifetime(handler) {}
        }
    }

    /// Delivers an event to the handlers and as a local notification. Threads: any; called with no lock held.
    func report(_ event: Event) {
        // Without a handler and a local notification, the delivery would have no effect.
        guard hasEventHandlers || localNotification(for: event) != nil else { return }
        // Weak: if no loop runs, an undelivered event must not keep the center and its thread alive.
        noteOverflow(target(for: nil).deliver(byteCount: 256) { [weak self] in self?.callHandlers(event) })
    }

    private var hasEventHandlers: Bool { state.withLock { !$0.eventHandlers.isEmpty } }

    /// Calls the handlers with an event, and posts its local notification. Threads: the delivery thread of observers.
    func callHandlers(_ event: Event) {
        for handler in state.withLock({ $0.eventHandlers.sorted { $0.key < $1.key }.map(\.value) }) { handler(event) }
        if let notification = localNotification(for: event) {
            NotificationCenter.default.post(
                name: notification.name, object: self, userInfo: [notification.key: notification.value])
        }
    }

    /// Counts and reports notifications that were dropped because a queue or a sequence was not emptied in time (T2).
    ///
    /// One event covers all losses until its delivery, and the next event follows a second later at the earliest. There
    /// are two reasons:
    ///
    /// - A program that does not empty the queue would not receive the events either. If both share a queue, every
    ///   event would push out another notification.
    /// - A program reacts to a loss with an expensive action, such as reading its state again.
    ///
    /// An event within that second follows only when another 16,384 notifications were lost, an eighth of a queue's
    /// limit. The previous event may then have been pushed out itself.
    ///
    /// Threads: any; called with no lock held.
    func noteOverflow(_ lost: Int) {
        guard lost > 0 else { return }
        let now = SuspendingClock.now
        // `wait`: the time until the next event; nil if an earlier call has scheduled it. `count`: the number of losses
        // so far if a log message is due.
        let (wait, count): (Duration?, UInt64?) = state.withLock { state in
            let unreported = state.unreportedOverflow
            state.unreportedOverflow += UInt64(lost)
            let count = Log.throttle(&state.statistics.overflowed, times: UInt64(lost))
            if unreported / 16_384 != state.unreportedOverflow / 16_384 { return (.zero, count) }
            guard unreported == 0 else { return (nil, count) }
            return (state.nextOverflow.map { max(.zero, $0 - now) } ?? .zero, count)
        }
        if let count {
            Log.warning("notifications are lost, because the program does not process them in time (\(count) so far)")
        }
        guard let wait else { return }
        guard wait > .zero else { return reportOverflow() }
        DispatchQueue.global().asyncAfter(deadline: .now() + wait / .seconds(1)) { [weak self] in self?.reportOverflow()
        }
    }

    /// The minimum time between two events about losses.
    private static let minOverflowInterval = Duration.seconds(1)

    /// Delivers the event about dropped notifications, with their number at the moment of the delivery. The delivery
    /// itself may push out other notifications, which this event or the next one reports.
    private func reportOverflow() {
        let alsoLost = target(for: nil).deliver(byteCount: 256) { [weak self] in
            guard let self else { return }
            let count = state.withLock { state in
                defer { state.unreportedOverflow = 0 }
                if state.unreportedOverflow > 0 { state.nextOverflow = .now + Self.minOverflowInterval }
                return state.unreportedOverflow
            }
            if count > 0 { callHandlers(.mayHaveMissedNotifications(.overflow(count: count))) }
        }
        state.withLock { state in
            state.statistics.overflowed += UInt64(alsoLost)
            state.unreportedOverflow += UInt64(alsoLost)
        }
    }

    /// Returns the local notification of an event; nil for an event without one.
    private func localNotification(
        for event: Event
    ) -> (name: Foundation.Notification.Name, key: String, value: any Sendable)? {
        switch event {
        case .mayHaveMissedNotifications(let gap): (.distributedNotificationsMayHaveBeenMissed, "gap", gap)
        case .connectionStateChanged(let state): (.distributedNotificationCenterStateDidChange, "state", state)
        case .suspensionChanged, .observerRefused, .detailsRefused, .postFailed, .postsMayBeLost: nil
        }
    }
}

/// The receiver of the session's reports, which passes them on to the center. Threads: the bus thread.
final class CenterReceiver: ServiceReceiver {
    // Weak: the center owns the link to the bus, whose session owns this receiver.
    private let reference = Weak<DistributedNotificationCenter>()

    var center: DistributedNotificationCenter? {
        get { reference.object }
        set { reference.object = newValue }
    }

    func received(_ notification: ArrivedNotification, for keys: [RegistrationKey]) {
        center?.deliver(notification, for: keys)
    }

    func stateChanged(_ state: ConnectionState) {
        guard let center else { return }
        let isNew = center.state.withLock { old -> Bool in
            defer { old.connectionState = state }
            return old.connectionState != state
        }
        guard isNew else { return }
        switch state {
        case .disconnected(let reason): Log.warning("no connection to the bus: \(reason)")
        case .serviceUnavailable(let reason): Log.warning("no notification center on the bus: \(reason)")
        case .nameTaken(let reason), .notAnswering(let reason): Log.warning(reason)
        case .connecting, .connected: break
        }
        center.report(.connectionStateChanged(state))
    }

    func mayHaveMissed(_ gap: Gap) {
        guard let center else { return }
        switch gap {
        case .missing(let count), .dropped(let count, _): center.count { $0.missed += count }
        case .serviceChanged, .overflow, .undecodable: break
        }
        Log.notice("distributed notifications may have been missed: \(gap)")
        center.report(.mayHaveMissedNotifications(gap))
    }

    func lostPosts(_ count: Int, because error: ServiceError) {
        center?.noteFailedPosts(count, DistributedNotificationError(error))
    }

    func mayHaveLostPosts(_ count: Int, because reason: String) {
        center?.noteUncertainPosts(count, because: reason)
    }

    func registrationRefused(_ key: RegistrationKey, because error: ServiceError) {
        center?.noteRefusedObserver(
            name: key.name.map { .init($0.text) }, object: key.object?.text, DistributedNotificationError(error))
    }

    func detailsRefused(because error: ServiceError) {
        Log.warning("the service does not send the requested details of notifications: \(error)")
        center?.report(.detailsRefused(DistributedNotificationError(error)))
    }

    func suspensionChanged(_ isSuspended: Bool, cause: String) {
        guard let center else { return }
        center.state.withLock { $0.suspendedByService = isSuspended }
        center.report(.suspensionChanged(isSuspended: isSuspended, cause: cause))
    }

    func transportChanged(to transport: Transport, because reason: String?) {
        center?.state.withLock { $0.transport = transport }
        if let reason { Log.notice("notifications go over the bus, not over a channel: \(reason)") }
    }
}
