import MainLoop

/// Compositors with the protocol `wlr-foreign-toplevel-management`: wlroots' own and others, not GNOME and KDE.
///
/// It tells the application's id of each window, and which is activated; not the process. So applications that run twice
/// can't be told apart, and are not suspended.
final class ForeignToplevelSource: ActivitySource {
    var onEvent: ((ActivityEvent) -> Void)?

    private let session: SessionEnvironment
    private let context: MainContext
    private var connection: WaylandConnection?
    private var registry: UInt32 = 0
    private var sync: UInt32 = 0
    private var manager: UInt32?
    /// The windows, by their objects.
    private var toplevels: [UInt32: Toplevel] = [:]
    private var active: UInt32?

    private struct Toplevel {
        var application: String?
        var isActivated = false
    }

    private static let managerInterface = "zwlr_foreign_toplevel_manager_v1"
    /// Objects that the compositor makes have numbers from here on.
    private static let firstServerObject: UInt32 = 0xFF00_0000
    private static let activated: UInt32 = 2

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
            // Answered when all that there is has been told.
            sync = connection.newObject()
            connection.request(0, of: WaylandConnection.display, .number(sync))
        } catch {
            end(error.description)
        }
    }

    private static func socketPath(in session: SessionEnvironment) -> String? {
        guard let display = session[.waylandDisplay] else { return nil }
        if display.hasPrefix("/") { return display }
        return session[.runtimeDirectory].map { "\($0)/\(display)" }
    }

    private func end(_ reason: String) {
        onEvent?(.ended(reason: reason))
    }

    // MARK: Events

    private func handle(_ event: WaylandConnection.Event) {
        var arguments = event.arguments
        switch (event.object, event.opcode) {
        case (registry, 0):
            if let name = arguments.number(), arguments.text() == Self.managerInterface,
                let version = arguments.number()
            {
                bind(name, version: version)
            }
        case (sync, _):
            guard manager != nil else { return end("the compositor has no \(Self.managerInterface)") }
            // The windows follow, with the active one; on an empty desktop nothing does.
            report(nil)
        case (manager, 0):
            if let toplevel = arguments.number(), toplevel >= Self.firstServerObject {
                toplevels[toplevel] = Toplevel()
            }
        case (manager, 1): end("the compositor tells no more")
        default:
            if toplevels[event.object] != nil { handle(event, of: event.object) }
        }
    }

    private func bind(_ name: UInt32, version: UInt32) {
        guard let connection, manager == nil else { return }
        let manager = connection.newObject()
        self.manager = manager
        connection.request(
            0, of: registry, .number(name), .text(Self.managerInterface), .number(min(version, 2)), .number(manager))
    }

    private func handle(_ event: WaylandConnection.Event, of toplevel: UInt32) {
        var arguments = event.arguments
        switch event.opcode {
        case 1: toplevels[toplevel]!.application = arguments.text()
        case 4: toplevels[toplevel]!.isActivated = arguments.numbers()?.contains(Self.activated) ?? false
        case 5:
            // What came before belongs together.
            if toplevels[toplevel]!.isActivated {
                report(toplevel)
            } else if active == toplevel {
                report(toplevels.first { $0.value.isActivated }?.key)
            }
        case 6:
            toplevels[toplevel] = nil
            connection?.request(7, of: toplevel)  // destroy
            if active == toplevel { active = nil }
            onEvent?(.closed(String(toplevel)))
        default: break
        }
    }

    private func report(_ toplevel: UInt32?) {
        active = toplevel
        onEvent?(
            .focused(
                toplevel.map { ActivityWindow(id: String($0), application: toplevels[$0]?.application) }))
    }
}
