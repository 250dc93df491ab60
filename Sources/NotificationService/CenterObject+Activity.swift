import DBus
import MainLoop
import NotificationCore

/// The desktop's part in suspension: from a source of activity to events of the core, and back to timers.
extension CenterObject {
    /// Follows the activity of applications in `session` from now on. Call once, before ``resume()``.
    ///
    /// Nothing here waits: a desktop that does not answer delays nobody.
    ///
    /// - Parameter uniqueName: that of ``bus``, for desktops that report to it.
    func followActivity(
        of session: SessionEnvironment, uniqueName: BusName, processes: any ProcessTable = ProcFileSystem()
    ) {
        let reports = ActivityReports(bus: bus)
        self.reports = reports
        let tracker = ActivityTracker(
            processes: processes,
            tell: { [unowned self] client, activity in
                Log.info("activity of \(client): \(activity.rawValue)", ["CARILLON_CLIENT": client])
                perform { effects in center.setActivity(activity, of: client, effects: &effects) }
            },
            ownerOfName: { [unowned self] name, completion in
                guard let name = BusName(rawValue: name), !name.isUnique else { return completion(nil) }
                bus.processID(of: name) { result in
                    if case .success(let processID) = result, processID > 0 {
                        completion(processID)
                    } else {
                        completion(nil)
                    }
                }
            })
        let context = bus.context
        let follower = ActivityFollower(
            choice: configuration.activityChoice, session: session, context: context, processes: processes,
            tracker: tracker
        ) { [unowned self] kind, session in makeSource(kind, session, reports, uniqueName) }
        follower.onChange = { [unowned self] in announce(["ActivitySource", "ActivityState"]) }
        clients.onIdentified = { [unowned follower] client, processID in
            follower.clientIdentified(client, processID: processID)
        }
        activity = follower
        follower.start()
    }

    private func makeSource(
        _ kind: ActivitySourceKind, _ session: SessionEnvironment, _ reports: ActivityReports, _ uniqueName: BusName
    ) -> any ActivitySource {
        let context = bus.context
        switch kind {
        case .x11: return X11Source(session: session, context: context)
        case .sway: return SwaySource(path: session[.swaySocket] ?? "", context: context)
        case .foreignToplevel: return ForeignToplevelSource(session: session, context: context)
        case .gnome: return GNOMEShellSource(bus: bus, reports: reports)
        case .kwin:
            return KWinSource(
                bus: bus, reports: reports, directory: (session[.runtimeDirectory] ?? "") + "/carillon",
                uniqueName: uniqueName)
        }
    }

    func startInactivityTimer(for client: ClientName, epoch: UInt64, milliseconds: UInt32) {
        inactivityTimers[client] = .once(milliseconds: milliseconds, on: bus.context) { [unowned self] in
            perform { effects in center.inactivityTimerEnded(client, epoch: epoch, effects: &effects) }
        }
    }
}
