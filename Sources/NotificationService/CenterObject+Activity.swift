import BusNames
import DBus
import DesktopActivity
import MainLoop
import NotificationCore

/// The desktop's part in suspension: from the activity of applications to events of the core, and back to timers.
extension CenterObject {
    /// Follows the activity of applications in the session from now on. Call once, before ``resume()``.
    ///
    /// - Parameter uniqueName: that of ``bus``, for desktops that report to it.
    func followActivity(uniqueName: UniqueName) {
        let monitor = ActivityMonitor(
            bus: bus, uniqueName: uniqueName, choice: configuration.activityChoice, processes: processes
        ) { [unowned self] client, activity in
            Log.info("activity of \(client): \(activity.rawValue)", ["CARILLON_CLIENT": client.rawValue])
            perform { effects in center.setActivity(activity, of: client, effects: &effects) }
        }
        monitor.onChange = { [unowned self] in announce(["ActivitySource", "ActivityState"]) }
        clients.onIdentified = { [unowned monitor] client, processID in
            monitor.clientIdentified(client, processID: processID)
        }
        activity = monitor
        monitor.start()
    }

    func startInactivityTimer(for client: ClientName, epoch: UInt64, milliseconds: UInt32) {
        inactivityTimers[client] = .once(milliseconds: milliseconds, on: bus.context) { [unowned self] in
            perform { effects in center.inactivityTimerEnded(client, epoch: epoch, effects: &effects) }
        }
    }
}
