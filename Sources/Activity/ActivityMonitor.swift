// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The interface of this module to the service: it reports for each client whether its application is active on the
/// desktop (A1 to A3). The service suspends the notifications of inactive clients.
///
/// It connects the ``ActivityFollower``, which gets the active window from the desktop, with the ``ActivityTracker``,
/// which maps windows to clients. It never blocks: a desktop that does not answer delays no client. Threads: all
/// members on the thread that runs the bus's context.
package final class ActivityMonitor {
    /// The kind of the source; nil without a source.
    package var kind: ActivitySourceKind? { follower.kind }
    /// The state of the source.
    package var state: ActivityState { follower.state }
    /// The reason why no client is suspended for inactivity now, with a remedy for the user; empty in the state
    /// `following`.
    package var reason: String { follower.reason }
    /// The application of the active window; nil while no source reports.
    package var activeApplication: ActiveApplication? { follower.tracker.activeApplication }
    /// Returns the rule by which a client's application is inactive.
    package func rule(for client: ClientName) -> InactiveWhen { follower.tracker.rule(for: client) }
    /// Called after a change of ``kind``, ``state`` or ``reason``.
    package var onChange: (() -> Void)? {
        get { follower.onChange }
        set { follower.onChange = newValue }
    }

    private let follower: ActivityFollower
    private let reports: ActivityReports
    private let screenLock: ScreenLock

    /// - Parameters:
    ///   - bus: The bus of the clients, which outlives this object.
    ///   - uniqueName: The unique name on `bus`, for desktops that report to it.
    ///   - choice: The configured source.
    ///   - rules: The configured rules of inactivity.
    ///   - session: The environment that is searched first for a desktop; those of clients follow.
    ///   - processes: The facts about processes.
    ///   - lookups: The runner of process queries that may block.
    ///   - tell: Called with each change of a client's activity.
    package init(
        bus: any MessageBus, uniqueName: UniqueName, choice: ActivityChoice, rules: InactivityRules,
        session: SessionEnvironment = .own, processes: any ProcessTable, lookups: ProcessLookups,
        tell: @escaping (ClientName, Activity) -> Void
    ) {
        let reports = ActivityReports(bus: bus)
        self.reports = reports
        let screenLock = ScreenLock(bus: bus)
        self.screenLock = screenLock
        let tracker = ActivityTracker(
            processes: processes, lookups: lookups, tell: tell,
            ownerOfName: { [unowned bus] name, completion in
                guard let name = WellKnownName(rawValue: name) else { return completion(nil) }
                bus.processID(of: name) { result in
                    if case .success(let processID) = result, processID > 0 {
                        completion(processID)
                    } else {
                        completion(nil)
                    }
                }
            })
        follower = ActivityFollower(
            choice: choice, rules: rules, session: session, context: bus.context, processes: processes,
            lookups: lookups,
            tracker: tracker
        ) { [unowned bus] kind, session in
            // The factory of sources. The screen lock matters only with a source, so it is watched from the first one
            // on.
            let source = kind.makeSource(in: session, bus: bus, uniqueName: uniqueName)
            reports.source = source as? ReportedSource
            screenLock.start()
            return source
        }
        screenLock.onChange = { [unowned follower] in follower.isLocked = $0 }
    }

    /// Starts the monitor.
    package func start() { follower.start() }

    /// Releases memory that departed clients leave unused (E8).
    package func releaseMemory() { follower.releaseMemory() }

    /// Called for each call that the service serves; checks at most every 2 seconds whether the desktop still answers.
    package func noteUse() { follower.noteUse() }

    /// Applies a new configuration, and restarts the source.
    package func choose(_ choice: ActivityChoice, _ rules: InactivityRules) { follower.choose(choice, rules) }

    // MARK: Clients

    /// Records a new client. The bus reports its process later, if at all.
    package func clientAppeared(_ client: ClientName) { follower.clientAppeared(client) }

    /// Records the process of a client, as reported by the bus.
    package func clientIdentified(_ client: ClientName, processID: UInt32) {
        follower.clientIdentified(client, processID: processID)
    }

    /// Removes a client that left.
    package func forget(_ client: ClientName) { follower.forget(client) }

    // MARK: Bus

    /// Handles a message for the report object or of a screen saver. Returns whether it was one of these.
    package func handle(_ message: Message) -> Bool { reports.handle(message) || screenLock.handle(message) }

    /// Handles a change of a bus name's owner.
    package func ownerChanged(_ change: OwnerChange) {
        reports.source?.ownerChanged(change)
        screenLock.ownerChanged(change)
    }
}
