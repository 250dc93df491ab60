import NotificationCore

/// From windows to clients: whose application is active (A1, A2).
///
/// It knows the clients' processes and the windows that the source *saw active*. A client is inactive only when a window
/// of its application was seen active, is still there, and is not the active one now. Whoever can't be told for certain
/// is unknown, which counts as active: processes without such a window, services, the compositor, what runs in a
/// terminal (the window is the terminal's), ids that are used again, applications that can't be told apart.
final class ActivityTracker {
    private struct Tracked {
        let facts: ProcessFacts?
        var told = Activity.unknown
    }

    /// Whose a window is.
    private enum Owner {
        case process(ProcessFacts)
        /// Only the application's id is known.
        case application(String)
        case nobody
    }

    private let processes: any ProcessTable
    private let tell: (ClientName, Activity) -> Void
    /// Asks the bus for the process that owns a name.
    private let ownerOfName: (String, @escaping (UInt32?) -> Void) -> Void
    private var clients: [ClientName: Tracked] = [:]
    private var windows: [WindowID: Owner] = [:]
    private var focused: WindowID?
    /// Whether a source tells which window is active.
    private(set) var isFollowing = false
    private var compositor: UInt32?
    /// Owners of the bus names that are ids of applications.
    private var nameOwners: [String: UInt32] = [:]

    /// Windows that were seen active and never closed: a source that does not tell of closed windows shall not make
    /// this grow for ever.
    private static let maximumWindows = 4096

    init(
        processes: any ProcessTable, tell: @escaping (ClientName, Activity) -> Void,
        ownerOfName: @escaping (String, @escaping (UInt32?) -> Void) -> Void = { $1(nil) }
    ) {
        self.processes = processes
        self.tell = tell
        self.ownerOfName = ownerOfName
    }

    // MARK: Clients

    /// The bus told the process of a client.
    ///
    /// - Parameter seen: when the client was first seen. A process that started after that has the id of the client's,
    ///   and is another.
    func clientIdentified(_ client: ClientName, processID: UInt32, seen: UInt64) {
        var facts = processes.facts(of: processID)
        if let start = facts?.identity.start, start > seen { facts = nil }
        clients[client] = Tracked(facts: facts)
        // Others are concerned only where it makes an application one of several.
        let isAlone = !windows.values.contains { if case .application = $0 { true } else { false } }
        update(only: isAlone ? client : nil)
    }

    func forget(_ client: ClientName) {
        clients[client] = nil
    }

    // MARK: The source

    func handle(_ event: ActivityEvent) {
        switch event {
        case .compositor(let processID): compositor = processID
        case .focused(let window):
            isFollowing = true
            focused = window?.id
            if let window { note(window) }
        case .closed(let id):
            windows[id] = nil
            if focused == id { focused = nil }
        case .undecided, .ended: reset()
        }
        update()
    }

    /// Everything that was seen is forgotten: everybody is unknown, until a source sees them active again.
    private func reset() {
        isFollowing = false
        windows = [:]
        focused = nil
        compositor = nil
        nameOwners = [:]
    }

    private func note(_ window: ActivityWindow) {
        if windows[window.id] == nil, windows.count >= Self.maximumWindows { windows = [:] }
        if let processID = window.processID, processID > 0 {
            // Looked at each time: the id of the window, or of the process, may be another's now.
            windows[window.id] = processes.facts(of: processID).map(Owner.process) ?? .nobody
        } else if let application = window.application, !application.isEmpty {
            windows[window.id] = .application(application)
            ownerOfName(application) { [weak self] processID in
                guard let self, nameOwners[application] != processID else { return }
                nameOwners[application] = processID
                update()
            }
        } else {
            windows[window.id] = .nobody
        }
    }

    // MARK: Who is active

    /// Tells what changed, of one client or of all.
    private func update(only client: ClientName? = nil) {
        var news: [(ClientName, Activity)] = []
        let groups = applicationGroups()
        for name in client.map({ [$0] }) ?? Array(clients.keys) {
            let activity = activity(of: clients[name]!, groups: groups)
            guard activity != clients[name]!.told else { continue }
            clients[name]!.told = activity
            news.append((name, activity))
        }
        // Those who resume come first: what they get is due.
        for (name, activity) in news where activity != .inactive { tell(name, activity) }
        for (name, activity) in news where activity == .inactive { tell(name, activity) }
    }

    private func activity(of client: Tracked, groups: [String: Set<Group>]) -> Activity {
        guard isFollowing, let facts = client.facts, !facts.isEssential, facts.identity.id != compositor else {
            return .unknown
        }
        var hasWindow = false
        var isHelperActive = false
        for (id, owner) in windows {
            switch owner {
            case .nobody: continue
            case .process(let window):
                guard facts.belongs(to: window) else {
                    // Whoever has a window is active with that of its helper, too. Whoever has none is not concerned.
                    if id == focused { isHelperActive = window.belongs(to: facts) }
                    continue
                }
            case .application(let application):
                guard let group = group(of: facts, for: application), groups[application] == [group] else { continue }
            }
            if id == focused { return .active }
            hasWindow = true
        }
        guard hasWindow else { return .unknown }
        return isHelperActive ? .active : .inactive
    }

    // MARK: Windows of which only the application's id is known

    /// What holds processes of one run of an application.
    private enum Group: Hashable {
        case sandbox(ProcessFacts.Sandbox)
        case unit(String)
        case process(ProcessIdentity)
    }

    /// The group that a process is in if it is of this application; nil if it is not.
    private func group(of facts: ProcessFacts, for application: String) -> Group? {
        if let sandbox = facts.sandbox {
            return sandbox.application == application && !sandbox.instance.isEmpty ? .sandbox(sandbox) : nil
        }
        if let unit = facts.unit, facts.unitApplication == application { return .unit(unit) }
        return nameOwners[application] == facts.identity.id ? .process(facts.identity) : nil
    }

    /// For each application that has such a window the groups among the clients. More than one can't be told apart.
    private func applicationGroups() -> [String: Set<Group>] {
        var groups: [String: Set<Group>] = [:]
        for case .application(let application) in windows.values where groups[application] == nil {
            groups[application] = Set(
                clients.values.compactMap { $0.facts.flatMap { group(of: $0, for: application) } })
        }
        return groups
    }
}
