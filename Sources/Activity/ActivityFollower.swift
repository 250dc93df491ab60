// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The state of the activity source.
package enum ActivityState: String {
    /// There is no source: the configuration wants none, or the session offers none.
    case off = "off"
    /// The source has not reported yet, or cannot report for now.
    case waiting = "waiting"
    case following = "following"
    /// The source failed.
    case lost = "lost"
}

/// The component that selects a source of activity, keeps it running, and forwards its events to the tracker.
///
/// A lost source is retried after 1, 2, 4 … seconds, with a last pause of about one minute. After that the follower
/// waits for a reason to retry: a new client, whose environment is examined, or a new configuration. A session without
/// a desktop therefore costs no wake-ups. While no source reports, all clients count as active.
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
    /// Whether a restart is in progress. Only its result is reported, not its steps.
    private var isRestarting = false
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
    /// The liveness check, while the source is followed.
    private var liveness: LivenessCheck?
    /// The sources left to try before the next pause, the best first.
    private var candidates: [ActivitySourceKind] = []
    private var failures = 0
    /// The first appearance of each client whose process is not known yet.
    private var appearances: [ClientName: UInt64] = [:]
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
        candidates = wanted
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

    /// Notes a use of the service. If the source is silent, clients that it keeps suspended are now treated wrongly.
    func noteUse() {
        guard tracker.isAnyoneInactive else { return }
        liveness?.noteUse()
    }

    /// Notes a new client. Its process is reported later, if at all.
    func clientAppeared(_ client: ClientName) {
        appearances[client] = processes.now
    }

    /// Releases memory that departed clients leave unused (E8).
    func releaseMemory() {
        appearances.releaseMemory()
        tracker.releaseMemory()
    }

    func forget(_ client: ClientName) {
        appearances[client] = nil
        tracker.forget(client)
    }

    /// Notes the process of a client. While no source reports, the client's environment may name a desktop unknown to
    /// the service.
    func clientIdentified(_ client: ClientName, processID: UInt32) {
        guard let seen = appearances.removeValue(forKey: client) else { return }
        tracker.clientIdentified(client, processID: processID, seen: seen)
        guard isLookingForDesktop else { return }
        lookups.find(processes.environment(of: processID), of: processID) { [weak self] theirs in
            self?.found(theirs ?? nil, of: client)
        }
    }

    private var isLookingForDesktop: Bool { (state == .off || state == .lost) && choice != .none }

    private func found(_ theirs: SessionEnvironment?, of client: ClientName) {
        guard isLookingForDesktop else { return }
        if let theirs, theirs.hasDesktop, theirs != session {
            session = theirs
            Log.info("activity: the session is that of \(client)", ["CARILLON_CLIENT": client.rawValue])
            restart()
        } else if source == nil, retryTimer == nil, !wanted.isEmpty {
            failures = 0
            candidates = wanted
            tryNext()
        }
    }

    private var wanted: [ActivitySourceKind] {
        switch choice {
        case .automatic: ActivitySourceKind.offered(by: session)
        case .none: []
        case .kind(let kind): [kind]
        }
    }

    private func restart() {
        (source, liveness, retryTimer, failures, hasWarned) = (nil, nil, nil, 0, false)
        tracker.handle(.undecided(reason: ""))
        let before = status
        isRestarting = true
        status = Status()
        start()
        isRestarting = false
        if status != before { onChange?() }
    }

    // MARK: Source

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
            guard let self, let source, self.source === source else { return }
            handle(event)
        }
        source.start()
    }

    private func handle(_ event: ActivityEvent) {
        liveness?.noteSign()
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
        if case .focused = event, isLocked { return tracker.handle(.focused(nil)) }
        tracker.handle(event)
    }

    /// - Parameter reason: The reason why no window is followed now.
    private func enter(_ state: ActivityState, _ reason: String = "") {
        let why = state == .following ? "" : "\(kind?.rawValue ?? ""): \(reason); \(kind?.advice ?? "")"
        status = Status(kind: kind, state: state, reason: why)
    }

    private func watchLiveness() {
        liveness = LivenessCheck(
            context: context, ask: { [unowned self] in source?.askForSign() },
            onSilence: { [unowned self] in handle(.ended(reason: "it has stopped answering")) })
    }

    private func retry() {
        let timer = retryTimer
        retryTimer = nil
        withExtendedLifetime(timer) { tryNext() }
    }

    /// Ends a round in which all sources failed. The next round follows after a pause, up to a maximum.
    private func pause() {
        candidates = wanted
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
