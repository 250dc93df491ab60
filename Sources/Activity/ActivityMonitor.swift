// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// Tells which clients' applications are active (A1 to A3): the whole of this module, for the service.
///
/// Nothing here waits: a desktop that does not answer delays nobody. Threads: all members on the thread that runs the
/// bus's context.
package final class ActivityMonitor {
    /// Where activity comes from; nil for none.
    package var kind: ActivitySourceKind? { follower.kind }
    package var state: ActivityState { follower.state }
    /// Why nobody is suspended by activity now, and what a person can do; empty while ``kind`` is followed.
    package var reason: String { follower.reason }
    /// Whose window is active; nil while nobody tells.
    package var activeApplication: ActiveApplication? { follower.tracker.activeApplication }
    /// When a client's application is inactive.
    package func rule(for client: ClientName) -> InactiveWhen { follower.tracker.rule(for: client) }
    /// Called when ``kind``, ``state`` or ``reason`` changed.
    package var onChange: (() -> Void)? {
        get { follower.onChange }
        set { follower.onChange = newValue }
    }

    private let follower: ActivityFollower
    private let reports: ActivityReports
    private let screenLock: ScreenLock

    /// - Parameters:
    ///   - bus: that of the clients, which outlives this.
    ///   - uniqueName: of `bus`, for desktops that report to it.
    ///   - choice: what the configuration says.
    ///   - rules: what it says of when an application is inactive.
    ///   - session: where the desktop is looked for first.
    ///   - lookups: finds out what the loop does not wait for.
    ///   - tell: called with each change of a client's activity.
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
            let source = kind.makeSource(in: session, bus: bus, uniqueName: uniqueName)
            reports.source = source as? ReportedSource
            screenLock.start()
            return source
        }
        screenLock.onChange = { [unowned follower] in follower.isLocked = $0 }
    }

    /// Begins.
    package func start() { follower.start() }

    /// Gives up what is kept of clients that are gone (E8).
    package func releaseRoom() { follower.releaseRoom() }

    /// The service is used. Call it for each call that is served; it costs next to nothing.
    package func noteUse() { follower.noteUse() }

    /// The configuration was read again: the source is started anew.
    package func choose(_ choice: ActivityChoice, _ rules: InactivityRules) { follower.choose(choice, rules) }

    // MARK: Clients

    /// A client was seen for the first time. Its process will be known later, if at all.
    package func clientAppeared(_ client: ClientName) { follower.clientAppeared(client) }

    /// The bus told the process of a client.
    package func clientIdentified(_ client: ClientName, processID: UInt32) {
        follower.clientIdentified(client, processID: processID)
    }

    package func forget(_ client: ClientName) { follower.forget(client) }

    // MARK: The bus

    /// Takes a message for the object that desktops report to, or of a screen saver. Returns whether it was one.
    package func handle(_ message: Message) -> Bool { reports.handle(message) || screenLock.handle(message) }

    /// A name on the bus changed its owner.
    package func ownerChanged(_ change: OwnerChange) {
        reports.source?.ownerChanged(change)
        screenLock.ownerChanged(change)
    }
}
