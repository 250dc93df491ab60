// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The state of the activity source. Only in the state `following` clients are suspended for inactivity.
package enum ActivityState: String {
    /// There is no source: the configuration selects none, or the session offers none.
    case off = "off"
    /// The source has not reported yet, or cannot report for now.
    case waiting = "waiting"
    /// The source reports the active window.
    case following = "following"
    /// The source failed; another attempt may follow.
    case lost = "lost"
}

/// The supervisor of the activity source: it selects a source for the desktop, starts it, restarts it after failures,
/// and forwards its events to the ``ActivityTracker``. ``ActivityMonitor`` owns it.
///
/// An attempt is a *round* in which all possible sources are tried, the best first. A failed round is repeated after 1,
/// 2, 4 … seconds, with a last pause of 64 seconds. After that the follower retries only for a reason: a new client,
/// whose environment may name the desktop, or a new configuration. A session without a desktop therefore costs no
/// wake-ups. While no source reports, all clients count as active.
final class ActivityFollower {
    /// A function that creates a source; tests replace it.
    typealias Factory = (ActivitySourceKind, SessionEnvironment) -> any ActivitySource

    let tracker: ActivityTracker
    var kind: ActivitySourceKind? { status.kind }
    var state: ActivityState { status.state }
    /// The reason why activity suspends no client now, with a remedy for the user; empty in the state `following`.
    var reason: String { status.reason }
    /// Called after a change of ``kind``, ``state`` or ``reason``.
    var onChange: (() -> Void)?
    private var status = Status() { didSet { if status != oldValue, !isRestarting { onChange?() } } }
    /// Whether a restart is in progress. Then ``onChange`` is called only at its end.
    private var isRestarting = false
    /// The values of ``kind``, ``state`` and ``reason``.
    private struct Status: Equatable {
        var kind: ActivitySourceKind?
        var state = ActivityState.off
        var reason = ""
    }

    /// Whether the screen is locked. Then no window counts as active, whichever window the source reports.
    var isLocked = false {
        didSet {
            guard isLocked != oldValue else { return }
            tracker.isLocked = isLocked
            guard state == .following else { return }
            tracker.handle(.focused(isLocked ? nil : focused))
        }
    }
    /// The last window reported by the source.
    private var focused: ActivityWindow?

    private let context: MainContext
    private let processes: any ProcessTable
    private let lookups: ProcessLookups
    private let factory: Factory
    private var session: SessionEnvironment
    private var choice: ActivityChoice
    private var source: (any ActivitySource)?
    /// The liveness check; nil unless the state is `following`.
    private var liveness: LivenessCheck?
    /// The sources left to try in this round, the best first.
    private var candidates: [ActivitySourceKind] = []
    /// The number of failed rounds since a source last reported, or since a restart.
    private var failures = 0
    /// The time of the first appearance of each client whose process is not known yet, on the clock of
    /// ``ProcessTable/now``.
    private var appearances: [ClientName: UInt64] = [:]
    /// The timer of the next attempt; nil if none is scheduled.
    private var retryTimer: EventSource?
    /// Whether the loss of the source was logged, so that it is logged once.
    private var hasWarned = false

    /// The maximum number of failed rounds; the pause before the last round is the longest.
    private static let maximumFailures = 7

    init(
        choice: ActivityChoice, rules: InactivityRules, session: SessionEnvironment, context: MainContext,
        processes: any ProcessTable, lookups: ProcessLookups, tracker: ActivityTracker, factory: @escaping Factory
    ) {
        self.choice = choice
        self.session = session
        self.context = context
        self.processes = processes
        self.lookups = lookups
        self.tracker = tracker
        tracker.rules = rules
        self.factory = factory
    }

    /// Starts the first source, without blocking.
    func start() {
        candidates = allowedSources
        guard let best = candidates.first else {
            status.reason = choice == .none ? "the configuration selects no source" : "the session offers no source yet"
            Log.notice("activity: \(choice == .none ? "off" : reason); no client is suspended for inactivity")
            return
        }
        Log.notice("activity: the source is \(best.rawValue)")
        tryNext()
    }

    /// Applies a new configuration. It restarts the source, since a user who reloads the configuration may have seen
    /// the source fail.
    func choose(_ choice: ActivityChoice, _ rules: InactivityRules) {
        self.choice = choice
        tracker.rules = rules
        restart()
    }

    /// Called for each call of a client. If clients are suspended for inactivity, the source's liveness is checked: a
    /// silent source would leave them suspended wrongly.
    func noteUse() {
        guard tracker.isAnyoneInactive else { return }
        liveness?.noteUse()
    }

    /// Records a new client. The bus reports its process later, if at all.
    func clientAppeared(_ client: ClientName) {
        appearances[client] = processes.now
    }

    /// Releases memory that departed clients leave unused (E8).
    func releaseMemory() {
        appearances.releaseMemory()
        tracker.releaseMemory()
    }

    /// Removes a client that left.
    func forget(_ client: ClientName) {
        appearances[client] = nil
        tracker.forget(client)
    }

    /// Records the process of a client. If the follower has no source, it also reads the client's environment, which
    /// may name a desktop that is missing in the service's own environment.
    func clientIdentified(_ client: ClientName, processID: UInt32) {
        guard let seen = appearances.removeValue(forKey: client) else { return }
        tracker.clientIdentified(client, processID: processID, seen: seen)
        guard isLookingForDesktop else { return }
        lookups.find(processes.environment(of: processID), of: processID) { [weak self] theirs in
            self?.found(theirs ?? nil, of: client)
        }
    }

    private var isLookingForDesktop: Bool { (state == .off || state == .lost) && choice != .none }

    /// Uses a client's environment: restarts with its desktop if that is new, or else begins a new round.
    private func found(_ theirs: SessionEnvironment?, of client: ClientName) {
        guard isLookingForDesktop else { return }
        if let theirs, theirs.hasDesktop, theirs != session {
            session = theirs
            Log.info("activity: the session is that of \(client)", ["CARILLON_CLIENT": client.rawValue])
            restart()
        } else if source == nil, retryTimer == nil, !allowedSources.isEmpty {
            failures = 0
            candidates = allowedSources
            tryNext()
        }
    }

    /// The sources that the configuration and the session allow, the best first.
    private var allowedSources: [ActivitySourceKind] {
        switch choice {
        case .automatic: ActivitySourceKind.offered(by: session)
        case .none: []
        case .kind(let kind): [kind]
        }
    }

    /// Discards the source and all failures, and starts again.
    private func restart() {
        (source, liveness, retryTimer, failures, hasWarned) = (nil, nil, nil, 0, false)
        // The tracker discards the windows of the old source.
        tracker.handle(.undecided(reason: ""))
        let before = status
        isRestarting = true
        status = Status()
        start()
        isRestarting = false
        if status != before { onChange?() }
    }

    // MARK: Source

    /// Starts the next source of this round; without one the round has failed.
    private func tryNext() {
        guard !candidates.isEmpty else { return pause() }
        let next = candidates.removeFirst()
        status.kind = next
        // A failed source stays in the state `lost` until it reports.
        if state != .lost {
            enter(.waiting, "it has not reported anything yet")
        }
        let source = factory(next, session)
        self.source = source
        source.watchesVisibility = tracker.rules.needVisibility
        source.onEvent = { [weak self, weak source] event in
            // A discarded source may still report.
            guard let self, let source, self.source === source else { return }
            handle(event)
        }
        source.start()
    }

    /// Updates the state by an event of the source, and forwards the event to the tracker.
    private func handle(_ event: ActivityEvent) {
        liveness?.recordAnswer()
        switch event {
        case .alive: return
        case .focused(let window):
            focused = window
            if state != .following {
                if hasWarned { Log.notice("activity: following \(kind?.rawValue ?? "") again") }
                (failures, hasWarned) = (0, false)
                enter(.following)
                watchLiveness()
            }
        case .undecided(let reason):
            liveness = nil
            if state == .following { Log.notice("activity: no client is suspended for inactivity: \(reason)") }
            enter(.waiting, reason)
        case .ended(let reason):
            let line = "activity: \(kind?.rawValue ?? "") is lost, no client is suspended for inactivity: \(reason)"
            if hasWarned { Log.info(line) } else { Log.warning(line, ["CARILLON_REASON": "activity-source"]) }
            hasWarned = true
            liveness = nil
            enter(.lost, reason)
            // The source is still in its callback, so it is released later.
            let ended = source
            source = nil
            retryTimer = .idle(on: context) { [weak self] in
                withExtendedLifetime(ended) {}
                self?.retry()
                return .remove
            }
        case .closed(let id): if focused?.id == id { focused = nil }
        default: break
        }
        // While the screen is locked, no window counts as active.
        if case .focused = event, isLocked { return tracker.handle(.focused(nil)) }
        tracker.handle(event)
    }

    /// Sets the state, and the text for the user.
    ///
    /// - Parameter reason: The reason why the active window is unknown; unused for `following`.
    private func enter(_ state: ActivityState, _ reason: String = "") {
        let why = state == .following ? "" : "\(kind?.rawValue ?? ""): \(reason); \(kind?.advice ?? "")"
        status = Status(kind: kind, state: state, reason: why)
    }

    private func watchLiveness() {
        liveness = LivenessCheck(
            context: context, ask: { [unowned self] in source?.requestAnswer() },
            onSilence: { [unowned self] in handle(.ended(reason: "it has stopped answering")) })
    }

    private func retry() {
        // The timer is held until the end, because its closure is the caller.
        let timer = retryTimer
        retryTimer = nil
        withExtendedLifetime(timer) { tryNext() }
    }

    /// Ends a round in which all sources failed. The next round follows after a pause, up to a maximum.
    private func pause() {
        candidates = allowedSources
        status.kind = candidates.first
        failures += 1
        guard failures <= Self.maximumFailures else {
            return Log.info("activity: no further attempt before a new client or a new configuration")
        }
        retryTimer = .timer(milliseconds: 1000 << UInt32(failures - 1), on: context) { [weak self] in
            self?.retry()
            return .remove
        }
    }
}
