// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The D-Bus object that receives the reports of a desktop's script or extension (KWin, GNOME). The service exports it
/// at ``ActivityInterface/path``.
///
/// It accepts reports only from the desktop itself, since any client of the bus could call it. Each report becomes an
/// event of ``source``.
final class ActivityReports {
    /// The source that receives the reports; nil if the current source is of another kind.
    weak var source: ReportedSource?
    private let bus: any MessageBus
    private var exporter: ObjectExporter!

    init(bus: any MessageBus) {
        self.bus = bus
        exporter = ObjectExporter(
            path: ActivityInterface.path,
            interface: Interface(
                name: ActivityInterface.name,
                methods: [
                    method { (report: ActivityInterface.Focused) in .focused(ActivityWindow(report)) },
                    method { (report: ActivityInterface.WindowFocused) in .focused(ActivityWindow(report)) },
                    method { (report: ActivityInterface.ShellWindow) in .shell(ActivityWindow(report)) },
                    method { (report: ActivityInterface.WindowVisibility) in
                        .window(ActivityWindow(report), isHidden: report.isHidden)
                    },
                    method { (report: ActivityInterface.Closed) in .closed(report.window) },
                    method { (_: ActivityInterface.Ended) in
                        .ended(reason: "the desktop's reports were turned off")
                    },
                ],
                signals: [
                    Interface.Signal(ActivityInterface.ReportRequested.member, []),
                    Interface.Signal(ActivityInterface.VisibilityRequested.member, []),
                ], properties: []))
    }

    /// Returns the D-Bus method for a kind of report, which passes the report to the source as an event.
    private func method<Report: ActivityReport>(_ event: @escaping (Report) -> ActivityEvent) -> Interface.Method {
        Interface.Method(Report.member, in: Report.arguments) { [unowned self] call throws(BusError) in
            var arguments = call.arguments
            let report = try Report(from: &arguments)
            guard let source, source.accepts(from: call.sender) else {
                throw BusError(
                    name: "org.freedesktop.DBus.Error.AccessDenied",
                    message: "only the desktop whose activity is followed may report it")
            }
            call.reply()
            source.onEvent?(event(report))
        }
    }

    /// Handles a message for this object. Returns whether it was one.
    func handle(_ message: Message) -> Bool {
        guard message.kind == .methodCall, message.hasPath(ActivityInterface.path) else { return false }
        return exporter.handle(message, from: bus)
    }
}

extension ActivityWindow {
    /// Creates the window of a report; nil if no window has the focus.
    fileprivate init?(_ report: ActivityInterface.Focused) {
        guard !report.window.isEmpty else { return nil }
        self.init(report.window, report.processID, report.application)
    }

    fileprivate init?(_ report: ActivityInterface.WindowFocused) {
        self.init(report.focused)
        kind = Kind(rawValue: report.kind) ?? .application
        let owner = WindowOwner(
            processID: report.ownerProcessID > 0 ? UInt32(report.ownerProcessID) : nil,
            application: report.ownerApplication.isEmpty ? nil : report.ownerApplication)
        if owner != WindowOwner() { transientFor = [owner] }
    }

    fileprivate init(_ report: ActivityInterface.WindowVisibility) {
        self.init(report.window)
        kind = Kind(rawValue: report.kind) ?? .application
    }

    fileprivate init(_ report: ActivityInterface.ShellWindow) {
        self.init(report.window, report.processID, report.application)
        kind = .shell
    }

    private init(_ id: WindowID, _ processID: Int32, _ application: String) {
        self.init(id: id, processID: processID > 0 ? UInt32(processID) : nil, application: application)
    }
}
