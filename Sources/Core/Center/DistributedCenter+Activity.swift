// SPDX-License-Identifier: Apache-2.0
/// The effect of application activity on suspension (A1, A2).
///
/// A change to active takes effect at once, a change to inactive after a delay. The reason: when a window closes or the
/// desktop changes, no application is active for an instant. The driver runs the timer of this delay, as an effect.
/// Each reported change has a number, its epoch (S5). A timer with an old epoch is ignored, so it never suspends a
/// client that became active meanwhile.
extension DistributedCenter {
    /// The delay between the inactivity of an application and the suspension of its client, in milliseconds.
    public static let inactivityDelayMilliseconds = 250

    /// Handles the desktop's report about the activity of a client's application. An unknown client is ignored.
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

    /// Handles the end of ``Effect/startInactivityTimer(_:epoch:milliseconds:)``: suspends the client if it is still
    /// inactive.
    public func inactivityTimerEnded(_ name: ClientName, epoch: UInt64, effects: inout [Effect]) {
        defer { eventEnded() }
        // Code under CARILLON_PLANTED injects a fault, in builds that test whether the simulation finds it (E7).
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

    /// Sets whether inactivity may suspend clients, as the configuration has it for all clients.
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
