// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The activity source for Wayland compositors with the protocol `wlr-foreign-toplevel-management`: those based on
/// wlroots and some others, not GNOME and KDE. ``SwaySource`` also uses it to detect the lock screen.
///
/// The protocol reports the application id of each window (*toplevel*) and the activated window, but no process. If an
/// application runs twice, its windows can't be assigned to one of the runs, so it is not suspended.
final class ForeignToplevelSource: ActivitySource {
    var onEvent: ((ActivityEvent) -> Void)?
    var watchesVisibility = false

    private let session: SessionEnvironment
    private let context: MainContext
    private var connection: WaylandConnection?
    /// The numbers of the Wayland objects: the registry, and the callback behind the list of globals.
    private var registry: UInt32 = 0
    private var sync: UInt32 = 0
    /// The callback of the last ``requestAnswer()``.
    private var answerCallback: UInt32 = 0
    /// The toplevel manager; nil until the compositor has announced it.
    private var manager: UInt32?
    /// The windows, by their object numbers.
    private var toplevels: [UInt32: Toplevel] = [:]
    /// The activated window, by its object number.
    private var active: UInt32?
    /// The last reported window: the inner nil means no active window, the outer one no report.
    private var reported: ActivityWindow??

    private struct Toplevel {
        var application: String?
        var isActivated = false
        var isMinimized = false
        /// The last reported visibility.
        var reportedHidden: Bool?
        /// Whether a field has changed since the last report. Titles are not stored, so their frequent changes cause no
        /// reports.
        var isChanged = true
        /// The window that this window is transient for; 0 for none.
        var parent: UInt32 = 0
    }

    private static let managerInterface = "zwlr_foreign_toplevel_manager_v1"
    /// The first number of objects created by the compositor.
    private static let firstServerObject: UInt32 = 0xFF00_0000
    /// The values of the protocol's window states.
    private static let minimized: UInt32 = 1
    private static let activated: UInt32 = 2
    /// The version of the protocol that reports parents.
    private static let version: UInt32 = 3
    /// The maximum number of windows in a chain of transient windows.
    private static let maximumDepth = 16

    init(session: SessionEnvironment, context: MainContext) {
        self.session = session
        self.context = context
    }

    func start() {
        guard let path = Self.socketPath(in: session) else { return end("WAYLAND_DISPLAY is not set") }
        do throws(UnixStream.Failure) {
            let connection = try WaylandConnection(path: path, context: context)
            self.connection = connection
            connection.onEvent = { [unowned self] in handle($0) }
            connection.onEnd = { [unowned self] in end($0) }
            if let processID = connection.peerProcessID { onEvent?(.compositor(processID)) }
            registry = connection.newObject()
            connection.request(1, of: WaylandConnection.display, .number(registry))  // get_registry
            // The reply comes after all globals have been announced.
            sync = connection.newObject()
            connection.request(0, of: WaylandConnection.display, .number(sync))  // sync
        } catch {
            end(error.description)
        }
    }

    private static func socketPath(in session: SessionEnvironment) -> String? {
        guard let display = session[.waylandDisplay] else { return nil }
        if display.hasPrefix("/") { return display }
        return session[.runtimeDirectory].map { "\($0)/\(display)" }
    }

    func requestAnswer() {
        answerCallback = connection?.newObject() ?? 0
        connection?.request(0, of: WaylandConnection.display, .number(answerCallback))  // sync
    }

    private func end(_ reason: String) {
        onEvent?(.ended(reason: reason))
    }

    // MARK: Events

    /// Handles an event by its object and opcode.
    private func handle(_ event: WaylandConnection.Event) {
        var arguments = event.arguments
        switch (event.object, event.opcode) {
        // global: the announcement of a global object.
        case (registry, 0):
            if let name = arguments.number(), arguments.text() == Self.managerInterface,
                let version = arguments.number()
            {
                bind(name, version: version)
            }
        case (sync, _):
            guard manager != nil else { return end("the compositor has no \(Self.managerInterface)") }
            // The events of the windows follow, and name the active one. Until then none is active, which is final on
            // an empty desktop.
            report(nil)
        case (answerCallback, _): onEvent?(.alive)
        // toplevel: a new window.
        case (manager, 0):
            if let toplevel = arguments.number(), toplevel >= Self.firstServerObject {
                toplevels[toplevel] = Toplevel()
            }
        // finished
        case (manager, 1): end("the compositor reports no more windows")
        default:
            if toplevels[event.object] != nil { handle(event, of: event.object) }
        }
    }

    /// Binds the toplevel manager, a global object of the compositor.
    private func bind(_ name: UInt32, version: UInt32) {
        guard let connection, manager == nil else { return }
        let manager = connection.newObject()
        self.manager = manager
        connection.request(
            0, of: registry, .number(name), .text(Self.managerInterface), .number(min(version, Self.version)),
            .number(manager))
    }

    /// Handles an event of a window. The numbers are the protocol's opcodes.
    private func handle(_ event: WaylandConnection.Event, of toplevel: UInt32) {
        var arguments = event.arguments
        switch event.opcode {
        // app_id
        case 1:
            toplevels[toplevel]!.application = arguments.text()
            toplevels[toplevel]!.isChanged = true
        // state
        case 4:
            let states = arguments.numbers() ?? []
            toplevels[toplevel]!.isActivated = states.contains(Self.activated)
            toplevels[toplevel]!.isMinimized = states.contains(Self.minimized)
            toplevels[toplevel]!.isChanged = true
        // done: completes a group of changes.
        case 5:
            guard toplevels[toplevel]!.isChanged else { return }
            toplevels[toplevel]!.isChanged = false
            reportVisibility(of: toplevel)
            if toplevels[toplevel]!.isActivated {
                report(toplevel)
            } else if active == toplevel {
                report(toplevels.first { $0.value.isActivated }?.key)
            }
        // parent
        case 7:
            toplevels[toplevel]!.parent = arguments.number() ?? 0
            toplevels[toplevel]!.isChanged = true
        // closed
        case 6:
            toplevels[toplevel] = nil
            connection?.request(7, of: toplevel)  // destroy
            // The close of the active window counts as the loss of the focus. The next report is sent in any case.
            if active == toplevel { (active, reported) = (nil, nil) }
            onEvent?(.closed(String(toplevel)))
        default: break
        }
    }

    /// Reports the visibility of a window. The protocol reports only the minimised state, so a window on another
    /// workspace counts as visible.
    private func reportVisibility(of id: UInt32) {
        guard watchesVisibility, let toplevel = toplevels[id], toplevel.reportedHidden != toplevel.isMinimized else {
            return
        }
        toplevels[id]!.reportedHidden = toplevel.isMinimized
        onEvent?(
            .window(
                ActivityWindow(id: String(id), application: toplevel.application), isHidden: toplevel.isMinimized))
    }

    /// Reports a window as active, with its chain of parents; nil for no active window.
    private func report(_ toplevel: UInt32?) {
        active = toplevel
        guard let toplevel else { return report(window: nil) }
        var window = ActivityWindow(id: String(toplevel), application: toplevels[toplevel]?.application)
        var child = toplevel
        while let parent = toplevels[child]?.parent, let application = toplevels[parent]?.application,
            window.transientFor.count < Self.maximumDepth
        {
            window.transientFor.append(ActivityWindow.WindowOwner(application: application))
            child = parent
        }
        report(window: window)
    }

    /// Reports the active window, unless the report would repeat the last one.
    private func report(window: ActivityWindow?) {
        guard reported != .some(window) else { return }
        reported = .some(window)
        onEvent?(.focused(window))
    }
}
