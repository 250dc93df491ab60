// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// The mapping from windows to clients, which determines the activity of each client: active, inactive or unknown (A1,
/// A2). The ``ActivityFollower`` passes it the events of the source, and the service receives the changes.
///
/// - A client is **active** if its application owns the active window, or a window that the active one is transient
///   for. A main process is also active while a helper process of its application owns the active window.
/// - A client is **inactive** only if a window of its application was active before, still exists, and is not the
///   active one now. With the rule `hidden`, it is inactive only if no window of its application is visible.
/// - In all other cases its activity is **unknown**, which counts as active. This concerns processes without such a
///   window, parts of the desktop such as panels, services, the compositor, and reused process ids. It also concerns
///   several runs of one application that can't be distinguished, and programs in a terminal, which owns the window.
final class ActivityTracker {
    /// A process with its clients, possibly thousands. All clients of a process have the same activity.
    private final class ClientProcess {
        let facts: ProcessFacts
        /// The parsed ``ProcessFacts/unitApplication``.
        let unitApplication: String?
        /// The name of the program.
        let program: String
        var clients: Set<ClientName> = []
        /// The activity that was last reported to the service.
        var reportedActivity = Activity.unknown

        init(_ facts: ProcessFacts, program: String) {
            self.facts = facts
            self.program = program
            unitApplication = facts.unitApplication
        }
    }

    /// The owner of a window.
    private enum Owner {
        case process(ProcessFacts)
        /// An application of which only the id is known.
        case application(String)
        /// An unknown owner.
        case nobody
    }

    private struct Window {
        var owner: Owner
        var kind: ActivityWindow.Kind
        /// The application's id; nil if the desktop does not report it.
        var application: String?
        /// Whether the window was active at any time, or is part of the desktop. Other windows are known only by their
        /// visibility.
        var counts = false
        var isHidden = false
        /// The number of the window's last event. An owner that was looked up for an earlier event is ignored.
        let number: UInt64

        init(_ window: ActivityWindow, owner: Owner, number: UInt64) {
            self.owner = owner
            self.number = number
            kind = window.kind
            application = window.application
        }
    }

    private let processes: any ProcessTable
    private let lookups: ProcessLookups
    /// Reports the changed activity of a client to the service.
    private let tell: (ClientName, Activity) -> Void
    /// Asks the bus for the process that owns a well-known name.
    private let ownerOfName: (String, @escaping (UInt32?) -> Void) -> Void
    private var clients: [ClientName: ClientProcess] = [:]
    private var tracked: [ProcessIdentity: ClientProcess] = [:]
    /// The process ids of clients whose process facts are being looked up.
    private var pending: [ClientName: UInt32] = [:]
    private var windows: [WindowID: Window] = [:]
    /// The active window; nil if none is active.
    private var focused: WindowID?
    /// The owners of the windows that the active window is transient for. A dialog of another process thus makes the
    /// application of its main window active.
    private var transientForOwners: [Owner] = []
    /// The number of the last event. Events are numbered, so that the result of an older lookup is ignored.
    private var lastEventNumber: UInt64 = 0
    /// The number of the last change of focus.
    private var focusNumber: UInt64 = 0
    /// The rules by which applications are inactive.
    var rules = InactivityRules() { didSet { if rules != oldValue { update() } } }
    /// Whether the screen is locked, so that no window is visible.
    var isLocked = false { didSet { if isLocked != oldValue { update() } } }
    /// The number of clients reported as inactive.
    private var inactiveCount = 0
    /// Whether any client is reported as inactive.
    var isAnyoneInactive: Bool { inactiveCount > 0 }
    /// Whether a source reports the active window.
    private(set) var isFollowing = false

    /// The application of the active window; nil while no source reports.
    var activeApplication: ActiveApplication? {
        guard isFollowing else { return nil }
        guard let focused, let window = windows[focused] else { return .nobody }
        return switch window.owner {
        case .process(let facts): .process(facts.identity.id, name: processes.name(of: facts.identity.id))
        case .application(let id): .application(id)
        case .nobody: .unknown
        }
    }

    /// Releases memory that departed clients leave unused (E8).
    func releaseMemory() {
        clients.releaseMemory()
        tracked.releaseMemory()
        pending.releaseMemory()
    }

    /// Returns the rule for a client's application, for display to people.
    func rule(for client: ClientName) -> InactiveWhen {
        guard let process = clients[client] else { return rules.general }
        let runs = runsByApplication()
        let own = windows.values.filter { isOwner(process, of: $0.owner, runs) }
        return rules.rule(for: names(of: process, own.compactMap(\.application)))
    }

    /// Returns the names by which the rules may identify a process's application. `windows` has the application ids of
    /// its windows.
    private func names(of process: ClientProcess, _ windows: [String]) -> [String] {
        [process.facts.sandbox?.application, process.unitApplication].compactMap(\.self) + windows + [process.program]
    }

    /// The process of the compositor or window manager, which is never inactive.
    private var compositor: UInt32?
    /// The processes that own a well-known name equal to an application id, by that id.
    private var nameOwners: [String: UInt32] = [:]

    /// The maximum number of known windows. It bounds the memory if a source does not report closed windows.
    private static let maximumWindows = 4096

    init(
        processes: any ProcessTable, lookups: ProcessLookups, tell: @escaping (ClientName, Activity) -> Void,
        ownerOfName: @escaping (String, @escaping (UInt32?) -> Void) -> Void = { $1(nil) }
    ) {
        self.processes = processes
        self.lookups = lookups
        self.tell = tell
        self.ownerOfName = ownerOfName
    }

    // MARK: Clients

    /// Records the process of a client, as reported by the bus, and looks up its facts.
    ///
    /// - Parameter seen: The time of the client's first appearance, on the clock of ``ProcessTable/now``. A later start
    ///   time means that another process reuses the id; then the client's process is unknown.
    func clientIdentified(_ client: ClientName, processID: UInt32, seen: UInt64) {
        pending[client] = processID
        lookups.find(processes.facts(of: processID), of: processID) { [weak self] facts in
            guard let self, pending[client] == processID else { return }
            pending[client] = nil
            // `facts` is nil if the lookup failed, and contains nil if there is no such process.
            identified(client, processID: processID, (facts ?? nil).flatMap { $0.identity.start > seen ? nil : $0 })
        }
    }

    /// Assigns a client to its process, and reports the activity if it is known. `facts` is nil for an unknown process.
    private func identified(_ client: ClientName, processID: UInt32, _ facts: ProcessFacts?) {
        leave(client)
        guard let facts else { return }
        let before = tracked[facts.identity]
        let isKnown = before?.facts == facts
        let process = isKnown ? before! : ClientProcess(facts, program: processes.name(of: processID))
        if !isKnown {
            tracked[facts.identity] = process
            // The same process may have entered another unit or a sandbox. The new entry takes over its clients.
            process.reportedActivity = before?.reportedActivity ?? .unknown
            process.clients = before?.clients ?? []
            for other in process.clients { clients[other] = process }
        }
        join(client, process)
        if process.reportedActivity != .unknown { tell(client, process.reportedActivity) }
        guard !isKnown else { return }
        // A new process affects others only if a window is known by its application id alone: the application may now
        // have several runs that can't be distinguished.
        let isAlone = !owners.contains { if case .application = $0 { true } else { false } }
        update(only: isAlone ? process : nil)
    }

    private func join(_ client: ClientName, _ process: ClientProcess) {
        clients[client] = process
        process.clients.insert(client)
        if process.reportedActivity == .inactive { inactiveCount += 1 }
    }

    /// Removes a client that left.
    func forget(_ client: ClientName) {
        pending[client] = nil
        leave(client)
    }

    private func leave(_ client: ClientName) {
        guard let process = clients.removeValue(forKey: client) else { return }
        process.clients.remove(client)
        if process.reportedActivity == .inactive { inactiveCount -= 1 }
        if process.clients.isEmpty { tracked[process.facts.identity] = nil }
    }

    // MARK: Source

    /// Applies an event of the source, and reports the changes of activity.
    func handle(_ event: ActivityEvent) {
        switch event {
        case .compositor(let processID): compositor = processID
        case .focused(let window):
            isFollowing = true
            focused = window?.id
            if let window { note(window, isHidden: false) }
            recordTransientForOwners(window?.transientFor ?? [])
        case .shell(let window): note(window, isHidden: false)
        case .window(let window, let isHidden): note(window, counts: false, isHidden: isHidden)
        case .closed(let id):
            windows[id] = nil
            if focused == id { (focused, transientForOwners) = (nil, []) }
        case .alive: return
        case .undecided, .ended: reset()
        }
        update()
    }

    /// Discards all events. Each client is unknown until a source reports its window as active again.
    private func reset() {
        isFollowing = false
        windows = [:]
        (focused, transientForOwners) = (nil, [])
        compositor = nil
        nameOwners = [:]
    }

    /// Records a window and looks up its owner.
    ///
    /// - Parameter counts: Whether the window is active now, or is part of the desktop.
    private func note(_ window: ActivityWindow, counts: Bool = true, isHidden: Bool) {
        let before = windows[window.id]
        // A table at its limit is cleared: then the activity of these applications is unknown.
        if before == nil, windows.count >= Self.maximumWindows { windows = [:] }
        lastEventNumber += 1
        let number = lastEventNumber
        // The owner is looked up at each event, since window ids and process ids can be reused.
        let owner = owner(window.statedOwner, before: before?.owner) { [weak self] owner in
            guard let self, windows[window.id]?.number == number else { return }
            windows[window.id]?.owner = owner
            update()
        }
        var noted = Window(window, owner: owner, number: number)
        noted.counts = counts || before?.counts == true
        noted.isHidden = isHidden
        windows[window.id] = noted
        lookUpBusName(of: noted.owner)
    }

    /// Records the owners of the windows that the active window is transient for.
    private func recordTransientForOwners(_ statedOwners: [ActivityWindow.WindowOwner]) {
        lastEventNumber += 1
        let number = lastEventNumber
        focusNumber = number
        transientForOwners = statedOwners.enumerated().map { index, statedOwner in
            owner(statedOwner, before: nil) { [weak self] owner in
                guard let self, focusNumber == number, transientForOwners.indices.contains(index) else { return }
                transientForOwners[index] = owner
                update()
            }
        }
        transientForOwners.forEach(lookUpBusName)
    }

    /// Returns the owner of a window, as far as it is known at once.
    ///
    /// - Parameters:
    ///   - party: The process or the application that the desktop reports for the window.
    ///   - before: The previous owner, which is kept during the lookup of its process.
    ///   - completion: Called later if the owner was not known at once. The lookup may end during this call; then its
    ///     result is returned, and `completion` is not called.
    private func owner(
        _ statedOwner: ActivityWindow.WindowOwner, before: Owner?, completion: @escaping (Owner) -> Void
    ) -> Owner {
        if let processID = statedOwner.processID, processID > 0 {
            var known: Owner?
            var isLater = false
            lookups.find(processes.facts(of: processID), of: processID) { facts in
                let owner = (facts ?? nil).map(Owner.process) ?? .nobody
                if isLater { completion(owner) } else { known = owner }
            }
            isLater = true
            if let known { return known }
            if case .process(let facts)? = before, facts.identity.id == processID { return .process(facts) }
            return .nobody
        }
        guard let application = statedOwner.application, !application.isEmpty else { return .nobody }
        return .application(application)
    }

    /// Asks the bus for the process that owns an application id as a well-known name, as many desktop applications do.
    private func lookUpBusName(of owner: Owner) {
        guard case .application(let application) = owner else { return }
        ownerOfName(application) { [weak self] processID in
            guard let self, nameOwners[application] != processID else { return }
            nameOwners[application] = processID
            update()
        }
    }

    private var owners: [Owner] { windows.values.map(\.owner) + transientForOwners }

    // MARK: Activity

    /// Computes the activity of one process or of all, and reports the changes.
    private func update(only process: ClientProcess? = nil) {
        var changes: [(ClientName, Activity)] = []
        let runs = runsByApplication()
        for process in process.map({ [$0] }) ?? Array(tracked.values) {
            let activity = activity(of: process, runs: runs)
            guard activity != process.reportedActivity else { continue }
            let change = (activity == .inactive ? 1 : 0) - (process.reportedActivity == .inactive ? 1 : 0)
            inactiveCount += change * process.clients.count
            process.reportedActivity = activity
            changes += process.clients.map { ($0, activity) }
        }
        // Resumed clients come first, since their notifications are due.
        for (name, activity) in changes where activity != .inactive { tell(name, activity) }
        for (name, activity) in changes where activity == .inactive { tell(name, activity) }
    }

    /// Returns the activity of a process; the rules are in the description of this class.
    private func activity(of process: ClientProcess, runs: [String: Set<ApplicationRun>]) -> Activity {
        let facts = process.facts
        guard isFollowing, !facts.isPartOfSession, facts.identity.id != compositor else { return .unknown }
        // About the windows of the process's application: whether one exists, was active before, is visible, or is part
        // of the desktop; and whether a helper process of the application owns the active window.
        var (hasWindow, wasActive, isVisible, isShell, isHelperActive) = (false, false, false, false, false)
        var applications: [String] = []
        for (id, window) in windows {
            guard isOwner(process, of: window.owner, runs) else {
                // The active window of a helper makes its main process active, too, if the main process has a window.
                if id == focused, case .process(let helper) = window.owner {
                    isHelperActive = helper.belongs(to: facts)
                }
                continue
            }
            if id == focused { return .active }
            switch window.kind {
            case .application:
                hasWindow = true
                wasActive = wasActive || window.counts
                isVisible = isVisible || !window.isHidden
            case .shell: isShell = true
            case .passing: break
            }
            if let application = window.application { applications.append(application) }
        }
        if transientForOwners.contains(where: { isOwner(process, of: $0, runs) }) { return .active }
        // An application with a part of the desktop is always visible, so it is never inactive.
        switch rules.rule(for: names(of: process, applications)) {
        case .unfocused: if !wasActive || isShell { return .unknown }
        case .hidden:
            if !hasWindow || isShell { return .unknown }
            if isVisible, !isLocked { return .active }
        }
        return isHelperActive ? .active : .inactive
    }

    /// Whether the process belongs to the owner of a window. An owner that is known only by its application id counts
    /// only if the application has one run.
    private func isOwner(_ process: ClientProcess, of owner: Owner, _ runs: [String: Set<ApplicationRun>]) -> Bool {
        switch owner {
        case .nobody: return false
        case .process(let window): return process.facts.belongs(to: window)
        case .application(let application):
            guard let run = run(of: process, for: application) else { return false }
            return runs[application] == [run]
        }
    }

    // MARK: Windows with only an application id

    /// One run of an application, identified by the container of its processes: a sandbox instance, a systemd unit, or
    /// a single process.
    private enum ApplicationRun: Hashable {
        case sandbox(ProcessFacts.Sandbox)
        case unit(String)
        case process(ProcessIdentity)
    }

    /// Returns the run of `application` to which a process belongs; nil if the process does not belong to it.
    private func run(of process: ClientProcess, for application: String) -> ApplicationRun? {
        let facts = process.facts
        if let sandbox = facts.sandbox {
            return sandbox.application == application && !sandbox.instance.isEmpty ? .sandbox(sandbox) : nil
        }
        if let unit = facts.unit, process.unitApplication == application { return .unit(unit) }
        return nameOwners[application] == facts.identity.id ? .process(facts.identity) : nil
    }

    /// Returns the runs, among the clients, of each application that owns a window and is known only by its id. With
    /// several runs, it is unknown which of them owns the window.
    private func runsByApplication() -> [String: Set<ApplicationRun>] {
        var runs: [String: Set<ApplicationRun>] = [:]
        for case .application(let application) in owners where runs[application] == nil {
            runs[application] = Set(tracked.values.compactMap { run(of: $0, for: application) })
        }
        return runs
    }
}
