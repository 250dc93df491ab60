// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// From windows to clients: whose application is active (A1, A2).
///
/// It knows the clients' processes and the windows that the source *saw active*. A client is inactive only when a window
/// of its application was seen active, is still there, and is not the active one now. Whoever can't be told for certain
/// is unknown, which counts as active: processes without such a window, services, the compositor, what runs in a
/// terminal (the window is the terminal's), ids that are used again, applications that can't be told apart.
final class ActivityTracker {
    /// A process that has clients, which may be thousands. All of them are active, or none.
    private final class Tracked {
        let facts: ProcessFacts
        /// As ``ProcessFacts/unitApplication``, taken apart once.
        let unitApplication: String?
        /// The name of its program.
        let program: String
        var clients: Set<ClientName> = []
        var told = Activity.unknown

        init(_ facts: ProcessFacts, program: String) {
            self.facts = facts
            self.program = program
            unitApplication = facts.unitApplication
        }
    }

    /// Whose a window is.
    private enum Owner {
        case process(ProcessFacts)
        /// Only the application's id is known.
        case application(String)
        case nobody
    }

    private struct Window {
        var owner: Owner
        var kind: ActivityWindow.Kind
        /// The id of its application, where the desktop tells it.
        var application: String?
        /// Whether it was seen active, or is a part of the desktop.
        var counts = false
        var isHidden = false
        /// Of its last news.
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
    private let tell: (ClientName, Activity) -> Void
    /// Asks the bus for the process that owns a name.
    private let ownerOfName: (String, @escaping (UInt32?) -> Void) -> Void
    private var clients: [ClientName: Tracked] = [:]
    private var tracked: [ProcessIdentity: Tracked] = [:]
    /// Those of whose processes the facts are being found out.
    private var pending: [ClientName: UInt32] = [:]
    private var windows: [WindowID: Window] = [:]
    private var focused: WindowID?
    /// Whose the windows are that the focused one is transient for.
    private var focusedFor: [Owner] = []
    /// Grows with each news of a window; that of the focus.
    private var lastNote: UInt64 = 0
    private var focusNumber: UInt64 = 0
    /// When an application is inactive.
    var rules = InactivityRules() { didSet { if rules != oldValue { update() } } }
    /// Whether the screen is locked: then no window can be seen.
    var isLocked = false { didSet { if isLocked != oldValue { update() } } }
    /// Clients that were told to be inactive.
    private var inactiveCount = 0
    /// Whether the source's word keeps anybody suspended.
    var isAnyoneInactive: Bool { inactiveCount > 0 }
    /// Whether a source tells which window is active.
    private(set) var isFollowing = false

    /// Whose window is active; nil while nobody tells.
    var activeApplication: ActiveApplication? {
        guard isFollowing else { return nil }
        guard let focused, let window = windows[focused] else { return .nobody }
        return switch window.owner {
        case .process(let facts): .process(facts.identity.id, name: processes.name(of: facts.identity.id))
        case .application(let id): .application(id)
        case .nobody: .unknown
        }
    }

    /// Gives up what is kept of clients that are gone (E8).
    func releaseRoom() {
        clients.releaseRoom()
        tracked.releaseRoom()
        pending.releaseRoom()
    }

    /// What holds for a client's application, for people.
    func rule(for client: ClientName) -> InactiveWhen {
        guard let process = clients[client] else { return rules.general }
        let groups = applicationGroups()
        let own = windows.values.filter { isOwner(process, of: $0.owner, groups) }
        return rules.rule(for: names(of: process, own.compactMap(\.application)))
    }

    /// The names by which the rules may know a process's application.
    private func names(of process: Tracked, _ windows: [String]) -> [String] {
        [process.facts.sandbox?.application, process.unitApplication].compactMap(\.self) + windows + [process.program]
    }

    private var compositor: UInt32?
    /// Owners of the bus names that are ids of applications.
    private var nameOwners: [String: UInt32] = [:]

    /// Windows that were seen active and never closed: a source that does not tell of closed windows shall not make
    /// this grow for ever.
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

    /// The bus told the process of a client.
    ///
    /// - Parameter seen: when the client was first seen. A process that started after that has the id of the client's,
    ///   and is another.
    func clientIdentified(_ client: ClientName, processID: UInt32, seen: UInt64) {
        pending[client] = processID
        lookups.find(processes.facts(of: processID), of: processID) { [weak self] facts in
            guard let self, pending[client] == processID else { return }
            pending[client] = nil
            identified(client, processID: processID, (facts ?? nil).flatMap { $0.identity.start > seen ? nil : $0 })
        }
    }

    private func identified(_ client: ClientName, processID: UInt32, _ facts: ProcessFacts?) {
        leave(client)
        guard let facts else { return }
        let before = tracked[facts.identity]
        let isKnown = before?.facts == facts
        let process = isKnown ? before! : Tracked(facts, program: processes.name(of: processID))
        if !isKnown {
            tracked[facts.identity] = process
            // Where there was one, it is in another unit now, or in a sandbox.
            process.told = before?.told ?? .unknown
            process.clients = before?.clients ?? []
            for other in process.clients { clients[other] = process }
        }
        join(client, process)
        if process.told != .unknown { tell(client, process.told) }
        guard !isKnown else { return }
        // Others are concerned only where it makes an application one of several.
        let isAlone = !owners.contains { if case .application = $0 { true } else { false } }
        update(only: isAlone ? process : nil)
    }

    private func join(_ client: ClientName, _ process: Tracked) {
        clients[client] = process
        process.clients.insert(client)
        if process.told == .inactive { inactiveCount += 1 }
    }

    func forget(_ client: ClientName) {
        pending[client] = nil
        leave(client)
    }

    private func leave(_ client: ClientName) {
        guard let process = clients.removeValue(forKey: client) else { return }
        process.clients.remove(client)
        if process.told == .inactive { inactiveCount -= 1 }
        if process.clients.isEmpty { tracked[process.facts.identity] = nil }
    }

    // MARK: The source

    func handle(_ event: ActivityEvent) {
        switch event {
        case .compositor(let processID): compositor = processID
        case .focused(let window):
            isFollowing = true
            focused = window?.id
            if let window { note(window, isHidden: false) }
            noteFocusedFor(window?.transientFor ?? [])
        case .shell(let window): note(window, isHidden: false)
        case .window(let window, let isHidden): note(window, counts: false, isHidden: isHidden)
        case .closed(let id):
            windows[id] = nil
            if focused == id { (focused, focusedFor) = (nil, []) }
        case .alive: return
        case .undecided, .ended: reset()
        }
        update()
    }

    /// Everything that was seen is forgotten: everybody is unknown, until a source sees them active again.
    private func reset() {
        isFollowing = false
        windows = [:]
        (focused, focusedFor) = (nil, [])
        compositor = nil
        nameOwners = [:]
    }

    private func note(_ window: ActivityWindow, counts: Bool = true, isHidden: Bool) {
        let before = windows[window.id]
        if before == nil, windows.count >= Self.maximumWindows { windows = [:] }
        lastNote += 1
        let number = lastNote
        // Looked at each time: the id of the window, or of the process, may be another's now.
        let owner = owner(window.party, before: before?.owner) { [weak self] owner in
            guard let self, windows[window.id]?.number == number else { return }
            windows[window.id]?.owner = owner
            update()
        }
        var noted = Window(window, owner: owner, number: number)
        noted.counts = counts || before?.counts == true
        noted.isHidden = isHidden
        windows[window.id] = noted
        lookForName(of: noted.owner)
    }

    private func noteFocusedFor(_ parties: [ActivityWindow.Party]) {
        lastNote += 1
        let number = lastNote
        focusNumber = number
        focusedFor = parties.enumerated().map { place, party in
            owner(party, before: nil) { [weak self] owner in
                guard let self, focusNumber == number, focusedFor.indices.contains(place) else { return }
                focusedFor[place] = owner
                update()
            }
        }
        focusedFor.forEach(lookForName)
    }

    /// Whose a window is, as far as that is known at once.
    ///
    /// - Parameters:
    ///   - before: whose it was; it stays so while its process is being asked about.
    ///   - completion: called later where it was not known at once.
    private func owner(
        _ party: ActivityWindow.Party, before: Owner?, completion: @escaping (Owner) -> Void
    ) -> Owner {
        if let processID = party.processID, processID > 0 {
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
        guard let application = party.application, !application.isEmpty else { return .nobody }
        return .application(application)
    }

    /// An application may own its id as a name on the bus.
    private func lookForName(of owner: Owner) {
        guard case .application(let application) = owner else { return }
        ownerOfName(application) { [weak self] processID in
            guard let self, nameOwners[application] != processID else { return }
            nameOwners[application] = processID
            update()
        }
    }

    private var owners: [Owner] { windows.values.map(\.owner) + focusedFor }

    // MARK: Who is active

    /// Tells what changed, of one process or of all.
    private func update(only process: Tracked? = nil) {
        var news: [(ClientName, Activity)] = []
        let groups = applicationGroups()
        for process in process.map({ [$0] }) ?? Array(tracked.values) {
            let activity = activity(of: process, groups: groups)
            guard activity != process.told else { continue }
            let change = (activity == .inactive ? 1 : 0) - (process.told == .inactive ? 1 : 0)
            inactiveCount += change * process.clients.count
            process.told = activity
            news += process.clients.map { ($0, activity) }
        }
        // Those who resume come first: what they get is due.
        for (name, activity) in news where activity != .inactive { tell(name, activity) }
        for (name, activity) in news where activity == .inactive { tell(name, activity) }
    }

    private func activity(of process: Tracked, groups: [String: Set<Group>]) -> Activity {
        let facts = process.facts
        guard isFollowing, !facts.isEssential, facts.identity.id != compositor else { return .unknown }
        // Of its windows: whether one comes to the front and goes to the back, whether it was seen active, whether it can be
        // seen; whether one is a part of the desktop.
        var (hasWindow, wasActive, isVisible, isShell, isHelperActive) = (false, false, false, false, false)
        var applications: [String] = []
        for (id, window) in windows {
            guard isOwner(process, of: window.owner, groups) else {
                // Whoever has a window is active with that of its helper, too. Whoever has none is not concerned.
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
        if focusedFor.contains(where: { isOwner(process, of: $0, groups) }) { return .active }
        switch rules.rule(for: names(of: process, applications)) {
        case .unfocused: if !wasActive || isShell { return .unknown }
        case .hidden:
            if !hasWindow || isShell { return .unknown }
            if isVisible, !isLocked { return .active }
        }
        return isHelperActive ? .active : .inactive
    }

    private func isOwner(_ process: Tracked, of owner: Owner, _ groups: [String: Set<Group>]) -> Bool {
        switch owner {
        case .nobody: return false
        case .process(let window): return process.facts.belongs(to: window)
        case .application(let application):
            guard let group = group(of: process, for: application) else { return false }
            return groups[application] == [group]
        }
    }

    // MARK: Windows of which only the application's id is known

    /// What holds processes of one run of an application.
    private enum Group: Hashable {
        case sandbox(ProcessFacts.Sandbox)
        case unit(String)
        case process(ProcessIdentity)
    }

    /// The group that a process is in if it is of this application; nil if it is not.
    private func group(of process: Tracked, for application: String) -> Group? {
        let facts = process.facts
        if let sandbox = facts.sandbox {
            return sandbox.application == application && !sandbox.instance.isEmpty ? .sandbox(sandbox) : nil
        }
        if let unit = facts.unit, process.unitApplication == application { return .unit(unit) }
        return nameOwners[application] == facts.identity.id ? .process(facts.identity) : nil
    }

    /// For each application that has such a window the groups among the clients. More than one can't be told apart.
    private func applicationGroups() -> [String: Set<Group>] {
        var groups: [String: Set<Group>] = [:]
        for case .application(let application) in owners where groups[application] == nil {
            groups[application] = Set(tracked.values.compactMap { group(of: $0, for: application) })
        }
        return groups
    }
}
