// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Dispatch
import Foundation

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
            // Out of the lock: it may hold what uses the center when it ends.
            let handler = self?.state.withLock { $0.eventHandlers.removeValue(forKey: number) }
            withExtendedLifetime(handler) {}
        }
    }

    /// Threads: any; called with no lock held.
    func report(_ event: Event) {
        guard hasEventHandlers || localNotification(for: event) != nil else { return }
        // Weak: where nothing runs, what waits must not keep the center and its thread.
        noteOverflow(target(for: nil).deliver(byteCount: 256) { [weak self] in self?.tell(event) })
    }

    private var hasEventHandlers: Bool { state.withLock { !$0.eventHandlers.isEmpty } }

    /// Threads: where observers run.
    func tell(_ event: Event) {
        for handler in state.withLock({ $0.eventHandlers.sorted { $0.key < $1.key }.map(\.value) }) { handler(event) }
        if let notification = localNotification(for: event) {
            NotificationCenter.default.post(
                name: notification.name, object: self, userInfo: [notification.key: notification.value])
        }
    }

    /// Notifications were lost because nothing took them out of a queue or a sequence (T2).
    ///
    /// Who takes nothing out would not take the events out either, one for each loss, and where the two share a queue
    /// every event would push out another notification. And what a program does about a loss, such as to read everything anew,
    /// it can't do hundreds of times a second. Therefore an event tells of all that was lost until it is delivered; the next one comes
    /// a second later at the earliest, and before that only after many more losses, as the first may itself have been pushed
    /// out.
    ///
    /// Threads: any; called with no lock held.
    func noteOverflow(_ lost: Int) {
        guard lost > 0 else { return }
        let now = SuspendingClock.now
        let (wait, count): (Duration?, UInt64?) = state.withLock { state in
            let untold = state.untoldOverflow
            state.untoldOverflow += UInt64(lost)
            let count = Log.throttle(&state.statistics.overflowed, times: UInt64(lost))
            if untold / 16_384 != state.untoldOverflow / 16_384 { return (.zero, count) }
            guard untold == 0 else { return (nil, count) }
            return (state.nextOverflow.map { max(.zero, $0 - now) } ?? .zero, count)
        }
        if let count {
            Log.warning("notifications are lost, as the program does not take them in time (\(count) so far)")
        }
        guard let wait else { return }
        guard wait > .zero else { return tellOverflow() }
        DispatchQueue.global().asyncAfter(deadline: .now() + wait / .seconds(1)) { [weak self] in self?.tellOverflow() }
    }

    /// The least time between two events of losses.
    private static let pauseOfOverflows = Duration.seconds(1)

    private func tellOverflow() {
        let alsoLost = target(for: nil).deliver(byteCount: 256) { [weak self] in
            guard let self else { return }
            let count = state.withLock { state in
                defer { state.untoldOverflow = 0 }
                if state.untoldOverflow > 0 { state.nextOverflow = .now + Self.pauseOfOverflows }
                return state.untoldOverflow
            }
            if count > 0 { tell(.mayHaveMissedNotifications(.overflow(count: count))) }
        }
        state.withLock { state in
            state.statistics.overflowed += UInt64(alsoLost)
            state.untoldOverflow += UInt64(alsoLost)
        }
    }

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

/// What arrives on the bus thread, handed on.
final class CenterReceiver: ServiceReceiver {
    // Weak: the center owns the bus thread, which owns this.
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
        Log.warning("the service does not tell who posted: \(error)")
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
