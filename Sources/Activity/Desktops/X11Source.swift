// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The activity source for an X11 session. It reads the property `_NET_ACTIVE_WINDOW`, which the window manager sets on
/// the root window. The process of a window comes from the X server (X-Resource extension), or else from the client
/// itself (`_NET_WM_PID`).
///
/// The properties of the root window remain when the window manager has died. The source therefore watches the window
/// manager's check window (`_NET_SUPPORTING_WM_CHECK`), which disappears with it. Without a check window, the active
/// window is unknown.
///
/// All queries are asynchronous; the X server answers them in their order.
final class X11Source: ActivitySource {
    var onEvent: ((ActivityEvent) -> Void)?
    var watchesVisibility = false

    private typealias Window = XCBConnection.Window

    private let session: SessionEnvironment
    private let context: MainContext
    /// The attempt to connect, while it runs.
    private var connector: XCBConnector?
    private var connection: XCBConnection!
    private var atoms = Atoms()
    /// Whether the server reports the processes of windows.
    private var canAskServer = false

    /// The window manager's check window, while it exists.
    private var manager: Window?
    /// The number of the last query of the active window, and of the query whose answer was last reported. A query has
    /// several steps, so an older query may end after a newer one; its answer is then ignored.
    private var lastQuery = 0
    private var lastReportedQuery = 0
    /// The active window; 0 if none is active.
    private var active: Window = 0
    /// The window that was active last, if none is active now.
    private var lastActive: Window = 0
    /// The windows in the window manager's list.
    private var managed: Set<Window> = []
    /// The windows that were reported in any event, so that their end must be reported.
    private var reported: Set<Window> = []
    /// The description and the last reported visibility of each managed window, if visibility is watched.
    private var seen: [Window: (window: ActivityWindow, isHidden: Bool?)] = [:]
    /// Whether a query of the visibility has no reply yet.
    private var isAskingVisibility = false
    /// Whether another query has to follow it, because something changed meanwhile.
    private var isVisibilityStale = false

    /// The server's numbers of property names and values.
    private struct Atoms {
        var activeWindow: XCBConnection.Atom = 0
        var clientList: XCBConnection.Atom = 0
        var stacking: XCBConnection.Atom = 0
        var state: XCBConnection.Atom = 0
        var hidden: XCBConnection.Atom = 0
        var supportingCheck: XCBConnection.Atom = 0
        var processID: XCBConnection.Atom = 0
        var windowType: XCBConnection.Atom = 0
        var windowTypes: [XCBConnection.Atom: ActivityWindow.Kind] = [:]
        var currentDesktop: XCBConnection.Atom = 0
        var windowDesktop: XCBConnection.Atom = 0
        var name: XCBConnection.Atom = 0
        let clientMachine = XCBConnection.clientMachine
    }

    /// Whether the window manager is i3, in which a container of windows can have the focus.
    private var hasContainers = false
    /// The maximum number of windows that are read from the list.
    private static let maximumWindows = 4096
    /// The maximum depth of dialogs of dialogs, and of frames around windows.
    private static let maximumDepth = 16
    /// The EWMH types of windows that do not belong to an application.
    private static let kinds: [String: ActivityWindow.Kind] = [
        "DOCK": .shell, "DESKTOP": .shell, "NOTIFICATION": .passing, "TOOLTIP": .passing, "SPLASH": .passing,
        "MENU": .passing, "DROPDOWN_MENU": .passing, "POPUP_MENU": .passing, "COMBO": .passing, "DND": .passing,
    ]

    init(session: SessionEnvironment, context: MainContext) {
        self.session = session
        self.context = context
    }

    deinit {
        connector?.abandon()
    }

    func start() {
        guard let display = session[.display] else { return end("DISPLAY is not set") }
        guard session.hasLocalDisplay else { return end("DISPLAY \(display) is not on this machine") }
        connector = XCBConnector.start(
            display: display, authority: session[.authority], context: context
        ) { [weak self] result in self?.connected(result) }
        if connector == nil { end("an earlier attempt still waits for the X server") }
    }

    /// Asks the server for an extension; any request would do.
    func requestAnswer() {
        connection?.isPresent("XWAYLAND") { [unowned self] _ in onEvent?(.alive) }
    }

    private func end(_ reason: String) {
        onEvent?(.ended(reason: reason))
    }

    // MARK: Connecting

    /// Continues after the attempt to connect: requests all atoms, and then looks for the window manager.
    private func connected(_ result: Result<XCBConnector.Success, XCBConnector.Failure>) {
        connector = nil
        switch result {
        case .failure(let failure): end(failure.description)
        case .success(let success):
            connection = XCBConnection(success, context: context)
            connection.onEvent = { [unowned self] in handle($0) }
            connection.onEnd = { [unowned self] in end($0) }
            connection.isPresent("XWAYLAND") { [unowned self] isPresent in
                if isPresent { end("the X server serves only some windows of a Wayland session") }
            }
            connection.prepareProcessIDs { [unowned self] in canAskServer = $0 }
            connection.atom("_NET_ACTIVE_WINDOW") { [unowned self] in atoms.activeWindow = $0 }
            connection.atom("_NET_CLIENT_LIST") { [unowned self] in atoms.clientList = $0 }
            connection.atom("_NET_CLIENT_LIST_STACKING") { [unowned self] in atoms.stacking = $0 }
            connection.atom("_NET_WM_STATE") { [unowned self] in atoms.state = $0 }
            connection.atom("_NET_WM_STATE_HIDDEN") { [unowned self] in atoms.hidden = $0 }
            connection.atom("_NET_WM_PID") { [unowned self] in atoms.processID = $0 }
            connection.atom("_NET_CURRENT_DESKTOP") { [unowned self] in atoms.currentDesktop = $0 }
            connection.atom("_NET_WM_DESKTOP") { [unowned self] in atoms.windowDesktop = $0 }
            connection.atom("_NET_WM_NAME") { [unowned self] in atoms.name = $0 }
            connection.atom("_NET_WM_WINDOW_TYPE") { [unowned self] in atoms.windowType = $0 }
            for (type, kind) in Self.kinds {
                connection.atom("_NET_WM_WINDOW_TYPE_\(type)") { [unowned self] in atoms.windowTypes[$0] = kind }
            }
            // The last request: its reply implies that the other atoms are known.
            connection.atom("_NET_SUPPORTING_WM_CHECK") { [unowned self] in
                atoms.supportingCheck = $0
                connection.select(propertyChanges: true, structure: false, of: connection.root)
                lookForManager()
            }
        }
    }

    private func handle(_ event: XCBConnection.Event) {
        switch event {
        case .propertyChanged(connection.root, atoms.supportingCheck): lookForManager()
        case .propertyChanged(connection.root, atoms.activeWindow):
            if manager != nil { askForActiveWindow() }
            askForVisibility()
        case .propertyChanged(connection.root, atoms.currentDesktop):
            if hasContainers { askForActiveWindow() }
            askForVisibility()
        case .propertyChanged(connection.root, atoms.clientList): if manager != nil { askForClientList() }
        // These events occur when a window comes to the front, and when one is minimised.
        case .propertyChanged(connection.root, atoms.stacking), .mapped: askForVisibility()
        case .reparented(let window): if seen[window] != nil { watchFrames(of: window) }
        case .destroyed(let window): if window == manager { managerDisappeared("the window manager ended") }
        default: break
        }
    }

    // MARK: Window manager

    /// Finds the window manager by its check window. The check window must name itself in the same property; otherwise
    /// the root window's property is a remainder of an earlier window manager.
    private func lookForManager() {
        connection.numbers(atoms.supportingCheck, of: connection.root) { [unowned self] value in
            guard let check = value?.first, check != 0 else { return managerDisappeared("there is no window manager") }
            // The watch precedes the query, so that the loss of the window is not missed.
            connection.select(propertyChanges: false, structure: true, of: check)
            connection.numbers(atoms.supportingCheck, of: check) { [unowned self] value in
                guard value?.first == check else { return managerDisappeared("the window manager is gone") }
                guard manager != check else { return }
                manager = check
                processID(of: check) { [unowned self] processID in
                    if let processID { onEvent?(.compositor(processID)) }
                }
                connection.text(atoms.name, of: check) { [unowned self] in
                    hasContainers = $0 == "i3"
                    askForClientList()
                    askForActiveWindow()
                }
            }
        }
    }

    /// Reports that the active window is unknown, and ignores the answers to pending queries.
    private func managerDisappeared(_ reason: String) {
        manager = nil
        lastReportedQuery = lastQuery
        (active, lastActive, managed, reported, seen) = (0, 0, [], [], [:])
        onEvent?(.undecided(reason: reason))
    }

    // MARK: Windows

    /// Queries the active window and reports it.
    private func askForActiveWindow() {
        lastQuery += 1
        let query = lastQuery
        connection.numbers(atoms.activeWindow, of: connection.root) { [unowned self] value in
            let window = value?.first ?? 0
            guard window == 0 else { return reportActive(window, to: query) }
            guard hasContainers, managed.contains(lastActive) else { return report(nil, to: query) }
            findContainer(of: lastActive) { [unowned self] isFocused in
                if isFocused { reportActive(lastActive, to: query) } else { report(nil, to: query) }
            }
        }
    }

    private func reportActive(_ window: Window, to query: Int) {
        describe(window) { [unowned self] in report($0, window, to: query) }
    }

    /// Determines whether the focus is on a container with this window. For a focused container i3 reports that no
    /// window has the focus, as for an empty workspace. The two cases differ in whether the window is on the current
    /// workspace.
    private func findContainer(of window: Window, completion: @escaping (Bool) -> Void) {
        var current: UInt32?
        connection.numbers(atoms.currentDesktop, of: connection.root) { current = $0?.first }
        connection.numbers(atoms.windowDesktop, of: window) { completion($0?.first != nil && $0?.first == current) }
    }

    /// Queries the kind, the process and the transient-for chain of a window. The requests go out together; the reply
    /// with the process comes last.
    private func describe(_ window: Window, completion: @escaping (ActivityWindow) -> Void) {
        var description = ActivityWindow(id: String(window))
        var parent: Window = 0
        kind(of: window) { description.kind = $0 }
        connection.numbers(XCBConnection.transientFor, of: window) { parent = $0?.first ?? 0 }
        processID(of: window) { [unowned self] processID in
            description.processID = processID
            addParents(of: description, from: parent, seen: [window], completion: completion)
        }
    }

    /// Appends the owners of the windows that this window is transient for, directly and indirectly. A dialog that is
    /// transient for the root window belongs to all windows of its own process, so it has no other owner.
    ///
    /// - Parameters:
    ///   - parent: The next window of the chain; 0 at its end.
    ///   - seen: The windows of the chain so far, by which a cycle is noticed.
    private func addParents(
        of description: ActivityWindow, from parent: Window, seen: Set<Window>,
        completion: @escaping (ActivityWindow) -> Void
    ) {
        guard parent != 0, parent != connection.root, !seen.contains(parent), seen.count < Self.maximumDepth else {
            return completion(description)
        }
        var next: Window = 0
        connection.numbers(XCBConnection.transientFor, of: parent) { next = $0?.first ?? 0 }
        processID(of: parent) { [unowned self] processID in
            var description = description
            if let processID { description.transientFor.append(ActivityWindow.WindowOwner(processID: processID)) }
            addParents(of: description, from: next, seen: seen.union([parent]), completion: completion)
        }
    }

    /// Determines the kind of a window from the first of its types that is known here.
    private func kind(of window: Window, completion: @escaping (ActivityWindow.Kind) -> Void) {
        connection.numbers(atoms.windowType, of: window, limit: 8) { [unowned self] types in
            completion(types?.lazy.compactMap { self.atoms.windowTypes[$0] }.first ?? .application)
        }
    }

    /// Reports the active window, unless a newer query was already answered.
    private func report(_ description: ActivityWindow?, _ window: Window = 0, to query: Int) {
        guard query > lastReportedQuery else { return }
        lastReportedQuery = query
        active = window
        if window != 0 {
            lastActive = window
            reported.insert(window)
        }
        onEvent?(.focused(description))
        reportClosed()
    }

    /// Queries the list of windows, reports closed ones, and examines new ones.
    private func askForClientList() {
        connection.numbers(atoms.clientList, of: connection.root, limit: Self.maximumWindows) { [unowned self] value in
            guard manager != nil else { return }
            let windows = Set(value ?? [])
            let new = windows.subtracting(managed)
            managed = windows
            reportClosed()
            for window in new { lookForShell(window) }
            if watchesVisibility { watchVisibility(at: new) }
        }
    }

    // MARK: Visibility

    /// Begins to watch the visibility of new windows.
    private func watchVisibility(at new: Set<Window>) {
        seen = seen.filter { managed.contains($0.key) }
        for window in new {
            describe(window) { [unowned self] description in
                guard managed.contains(window) else { return }
                seen[window] = (description, nil)
                watchFrames(of: window)
            }
        }
        if new.isEmpty { askForVisibility() }
    }

    /// Watches a window and all its ancestors, since window managers hide a window by unmapping it or the frame around
    /// it. Each window is watched before its parent is queried, so that no change is missed.
    private func watchFrames(of window: Window, depth: Int = 0) {
        connection.select(propertyChanges: false, structure: true, of: window)
        connection.parent(of: window) { [unowned self] parent in
            guard let parent, parent != connection.root, depth < Self.maximumDepth else { return askForVisibility() }
            watchFrames(of: parent, depth: depth + 1)
        }
    }

    /// Queries the visibility of all windows at once, and reports changes. A window is hidden if it has the state
    /// `_NET_WM_STATE_HIDDEN`, or if it or an ancestor is not mapped, as on another workspace. Some window managers do
    /// not unmap windows of other workspaces; these windows count as visible.
    private func askForVisibility() {
        guard watchesVisibility, manager != nil, !seen.isEmpty else { return }
        isVisibilityStale = isAskingVisibility
        guard !isAskingVisibility else { return }
        isAskingVisibility = true
        for window in seen.keys {
            var states: [UInt32] = []
            connection.numbers(atoms.state, of: window, limit: 32) { states = $0 ?? [] }
            connection.isViewable(window) { [unowned self] isViewable in
                guard let isViewable, let (description, reportedHidden) = seen[window] else { return }
                let isHidden = !isViewable || states.contains(atoms.hidden)
                guard reportedHidden != isHidden else { return }
                seen[window] = (description, isHidden)
                reported.insert(window)
                onEvent?(.window(description, isHidden: isHidden))
            }
        }
        // The reply to this request comes behind all replies above, and ends the query.
        connection.isPresent("XWAYLAND") { [unowned self] _ in
            isAskingVisibility = false
            if isVisibilityStale { askForVisibility() }
        }
    }

    /// Reports a window if it is part of the desktop, such as a panel, which may never be active.
    private func lookForShell(_ window: Window) {
        kind(of: window) { [unowned self] kind in
            guard kind == .shell else { return }
            processID(of: window) { [unowned self] processID in
                guard managed.contains(window) else { return }
                reported.insert(window)
                onEvent?(.shell(ActivityWindow(id: String(window), processID: processID, kind: .shell)))
            }
        }
    }

    /// Reports windows as closed that the window manager no longer lists. The active window is excepted: it may be too
    /// new for the list.
    private func reportClosed() {
        for window in reported where window != active && !managed.contains(window) {
            reported.remove(window)
            onEvent?(.closed(String(window)))
        }
    }

    /// Queries the process of a window, from the server or else from the client's own statement.
    private func processID(of window: Window, completion: @escaping (UInt32?) -> Void) {
        guard canAskServer else { return statedProcessID(of: window, completion: completion) }
        connection.processID(of: window) { [unowned self] processID in
            if let processID { completion(processID) } else { statedProcessID(of: window, completion: completion) }
        }
    }

    /// Queries the process id that the client itself states, if the client also states that it runs on this machine.
    private func statedProcessID(of window: Window, completion: @escaping (UInt32?) -> Void) {
        connection.text(atoms.clientMachine, of: window) { [unowned self] machine in
            guard machine == Self.hostName else { return completion(nil) }
            connection.numbers(atoms.processID, of: window) { completion($0?.first) }
        }
    }

    private static var hostName: String {
        var name = [CChar](repeating: 0, count: 256)
        gethostname(&name, name.count - 1)
        return name.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
    }
}
