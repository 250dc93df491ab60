// SPDX-License-Identifier: Apache-2.0
/// The effect of application activity on suspension (A1, A2).
///
/// A change to active counts at once, a change to inactive after a delay: a window that closes, or a change of desktop,
/// leaves no application active for an instant. The center has no timer, so the delay is an effect. Each change of
/// activity has an epoch (S5), so that a late timer never suspends a client that became active since.
extension DistributedCenter {
    /// The delay between the inactivity of an application and the suspension of its client.
    public static let inactivityDelayMilliseconds = 250

    /// Takes the activity of a client's application from the desktop. An unknown client has nothing to suspend.
    public func setActivity(_ activity: Activity, of name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let client = clients[name], client.reportedActivity != activity else { return }
        client.reportedActivity = activity
        lastActivityEpoch += 1
        client.activityEpoch = lastActivityEpoch
        guard activity == .inactive else {
            return changeSuspension(of: client, effects: &effects) { $0.activity = activity }
        }
        effects.append(
            .startInactivityTimer(
                name, epoch: lastActivityEpoch, milliseconds: Self.inactivityDelayMilliseconds))
    }

    /// Takes the end of ``Effect/startInactivityTimer(_:epoch:milliseconds:)``. Nothing happens when the activity
    /// changed meanwhile.
    public func inactivityTimerEnded(_ name: ClientName, epoch: UInt64, effects: inout [Effect]) {
        defer { eventEnded() }
        #if CARILLON_PLANTED
            let isLate = PlantedFault.strikes(.lateInactivity)
        #else
            let isLate = false
        #endif
        guard let client = clients[name],
            isLate || client.activityEpoch == epoch && client.reportedActivity == .inactive
        else { return }
        changeSuspension(of: client, effects: &effects) { $0.activity = .inactive }
    }

    /// Sets whether activity suspends clients at all, as configured for every client.
    public func setAutomaticSuspension(_ isOn: Bool, effects: inout [Effect]) {
        defer { eventEnded() }
        guard isOn != suspendsAutomatically else { return }
        suspendsAutomatically = isOn
        // Sorted by name, so that the same events have the same effects in every process.
        meter.countSort(of: clients.count)
        for client in clients.values.sorted(by: { $0.name < $1.name }) {
            changeSuspension(of: client, effects: &effects) { $0.isAutomationOn = isOn }
        }
    }
}
