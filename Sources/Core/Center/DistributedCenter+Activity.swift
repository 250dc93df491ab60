// SPDX-License-Identifier: Apache-2.0
/// How the activity of applications becomes suspension (A1, A2).
///
/// Activity is one more event. It counts at once where it resumes, and after a moment where it suspends: a window that
/// closes, or a change of desktop, leaves nobody active for an instant. The center has no clock, so the moment is an
/// effect. Each change of activity has an epoch (S5), so that a timer that ends late never suspends a client that
/// became active since.
extension DistributedCenter {
    /// How long a client's application is inactive before the client is suspended.
    public static let inactivityDelayMilliseconds = 250

    /// The desktop told something about the application of a client. A client that the center does not know has
    /// nothing to suspend.
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

    /// The time of ``Effect/startInactivityTimer(_:epoch:milliseconds:)`` is over. Nothing happens when the activity
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

    /// Whether activity suspends at all: the configuration's word, which holds for every client.
    public func setAutomaticSuspension(_ isOn: Bool, effects: inout [Effect]) {
        defer { eventEnded() }
        guard isOn != suspendsAutomatically else { return }
        suspendsAutomatically = isOn
        // By name, so that the same events have the same effects in every process.
        meter.countSort(of: clients.count)
        for client in clients.values.sorted(by: { $0.name < $1.name }) {
            changeSuspension(of: client, effects: &effects) { $0.isAutomationOn = isOn }
        }
    }
}
