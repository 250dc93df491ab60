// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// How far the following of a source is.
package enum ActivityState: String {
    /// There is no source: the configuration wants none, or the session offers none.
    case off = "off"
    /// The source has not told anything yet, or can't tell for now.
    case waiting = "waiting"
    case following = "following"
    /// The source failed.
    case lost = "lost"
}

/// Chooses the source of activity that the session offers, keeps it going, and hands what it tells to the tracker.
///
/// A source that is lost is tried again after 1, 2, 4 … seconds, up to about a minute. After that nothing happens until
/// there is a reason to think that it may work: a new client, whose environment is looked at, or a new configuration. So
/// a session without a desktop costs no wake-ups. While no source tells, everybody is active.
final class ActivityFollower {
    /// Makes a source; a test puts its own in its place.
    typealias Factory = (ActivitySourceKind, SessionEnvironment) -> any ActivitySource

    let tracker: ActivityTracker
    var kind: ActivitySourceKind? { status.kind }
    var state: ActivityState { status.state }
    /// Why nobody is suspended by activity now, and what a person can do about it; empty while the source is followed.
    var reason: String { status.reason }
    /// Called when ``kind``, ``state`` or ``reason`` changed.
    var onChange: (() -> Void)?
    private var status = Status() { didSet { if status != oldValue, !isRestarting { onChange?() } } }
    /// What a restart comes to is told, and not its steps.
    private var isRestarting = false
    private struct Status: Equatable {
        var kind: ActivitySourceKind?
        var state = ActivityState.off
        var reason = ""
    }

    /// Whether the screen is locked: then no window is active, whatever the source says.
    var isLocked = false {
        didSet {
            guard isLocked != oldValue else { return }
            tracker.isLocked = isLocked
            guard state == .following else { return }
            tracker.handle(.focused(isLocked ? nil : focused))
        }
    }
    /// What the source told last.
    private var focused: ActivityWindow?

    private let context: MainContext
    private let processes: any ProcessTable
    private let lookups: ProcessLookups
    private let factory: Factory
    private var session: SessionEnvironment
    private var choice: ActivityChoice
    private var source: (any ActivitySource)?
    /// While the source is followed.
    private var liveness: LivenessCheck?
    /// Those that are still to be tried before the next pause, the best first.
    private var candidates: [ActivitySourceKind] = []
    private var failures = 0
    /// When clients were seen first whose process is not known yet.
    private var appearances: [ClientName: UInt64] = [:]
    private var retryTimer: EventSource?
    /// Whether the loss of the source was told, so that it is told once.
    private var hasWarned = false

    /// The pause before the last attempt of a series.
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

    /// Begins. Nothing here waits for anything.
    func start() {
        candidates = wanted
        guard let best = candidates.first else {
            status.reason = choice == .none ? "the configuration wants no source" : "the session offers no source yet"
            Log.notice("activity: \(choice == .none ? "off" : reason); nobody is suspended for it")
            return
        }
        Log.notice("activity: the source is \(best.rawValue)")
        tryNext()
    }

    /// The configuration was read again, which starts the source anew: whoever asks for that may have seen it go wrong.
    func choose(_ choice: ActivityChoice, _ rules: InactivityRules) {
        self.choice = choice
        tracker.rules = rules
        restart()
    }

    /// The service is used: what it does now to who is suspended may be wrong if the source tells no more.
    func noteUse() {
        guard tracker.isAnyoneInactive else { return }
        liveness?.noteUse()
    }

    /// A client was seen for the first time. Its process will be known later, if at all.
    func clientAppeared(_ client: ClientName) {
        appearances[client] = processes.now
    }

    /// Gives up what is kept of clients that are gone (E8).
    func releaseRoom() {
        appearances.releaseRoom()
        tracker.releaseRoom()
    }

    func forget(_ client: ClientName) {
        appearances[client] = nil
        tracker.forget(client)
    }

    /// A client's process is known. While no source tells, the client may know of a desktop that the service does not.
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

    // MARK: The source

    private func tryNext() {
        guard !candidates.isEmpty else { return pause() }
        let next = candidates.removeFirst()
        status.kind = next
        // A source that failed stays lost until it has something to tell.
        if state != .lost {
            enter(.waiting, "it has not told anything yet")
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
            if state == .following { Log.notice("activity: nobody is suspended for it: \(reason)") }
            enter(.waiting, reason)
        case .ended(let reason):
            let line = "activity: \(kind?.rawValue ?? "") is lost, nobody is suspended for it: \(reason)"
            if hasWarned { Log.info(line) } else { Log.warning(line, ["CARILLON_REASON": "activity-source"]) }
            hasWarned = true
            liveness = nil
            enter(.lost, reason)
            // Later: it is still talking.
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

    /// - Parameter reason: why nobody is followed now.
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

    /// All have failed: the next round comes after a pause, if at all.
    private func pause() {
        candidates = wanted
        status.kind = candidates.first
        failures += 1
        guard failures <= Self.maximumFailures else {
            return Log.info("activity: not tried again until a new client, or a new configuration, comes")
        }
        retryTimer = .timer(milliseconds: 1000 << UInt32(failures - 1), on: context) { [weak self] in
            self?.retry()
            return .remove
        }
    }
}
