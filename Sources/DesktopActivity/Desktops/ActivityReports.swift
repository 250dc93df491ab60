import DBus
import MainLoop

/// The object that desktops report to which can only tell by a script of their own (KWin, GNOME): which window has the
/// focus. Only the desktop itself is listened to; anybody could call.
///
/// Its interface is documented in `dbus-interfaces/org.carillon.Activity1.xml`.
final class ActivityReports {
    static let path: ObjectPath = "/org/carillon/Activity"
    static let interface: InterfaceName = "org.carillon.Activity1"

    /// Who takes the reports, while there is a source of this kind.
    weak var source: ReportedSource?
    private let bus: any MessageBus
    private var exporter: ObjectExporter!

    init(bus: any MessageBus) {
        self.bus = bus
        exporter = ObjectExporter(
            path: Self.path,
            interface: Interface(
                name: Self.interface,
                methods: [
                    Interface.Method(
                        "Focused", in: [.init("window", "s"), .init("pid", "i"), .init("application", "s")]
                    ) { [unowned self] call throws(BusError) in
                        var arguments = call.arguments
                        let id = try arguments.readString()
                        let processID = try arguments.read(Int32.self)
                        let application = try arguments.readString()
                        try report(
                            .focused(
                                id.isEmpty
                                    ? nil
                                    : ActivityWindow(
                                        id: id, processID: processID > 0 ? UInt32(processID) : nil,
                                        application: application)), call)
                    },
                    Interface.Method("Closed", in: [.init("window", "s")]) { [unowned self] call throws(BusError) in
                        var arguments = call.arguments
                        try report(.closed(try arguments.readString()), call)
                    },
                ], signals: [Interface.Signal("ReportRequested", [])], properties: []))
    }

    private func report(_ event: ActivityEvent, _ call: MethodCall) throws(BusError) {
        guard let source, source.accepts(from: call.sender) else {
            throw BusError(
                name: "org.freedesktop.DBus.Error.AccessDenied",
                message: "only the desktop whose activity is followed may report it")
        }
        call.reply()
        source.onEvent?(event)
    }

    /// Takes a message for this object. Returns whether it was one.
    func handle(_ message: Message) -> Bool {
        guard message.kind == .methodCall, message.hasPath(Self.path) else { return false }
        return exporter.handle(message, from: bus)
    }
}
