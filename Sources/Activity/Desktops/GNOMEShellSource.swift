// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The activity source for GNOME Shell. The shell itself does not report the active window to programs; this project's
/// extension `carillon-activity@carillon.org`, which the user has to enable, does.
///
/// The service does not know whether the extension is enabled until its first report; until then all clients count as
/// active.
final class GNOMEShellSource: ReportedSource {
    init(bus: any MessageBus) {
        super.init(peer: "org.gnome.Shell", bus: bus)
    }

    /// Requests a report by signals. The extension reports on its own when the service appears on the bus; the signals
    /// are needed if the source starts later, after a change of the configuration.
    override func desktopFound() {
        if watchesVisibility, let owner { bus.send(ActivityInterface.VisibilityRequested().signal(to: owner)) }
        requestAnswer()
    }

    /// Asks the extension to report the focus again.
    override func requestAnswer() {
        if let owner { bus.send(ActivityInterface.ReportRequested().signal(to: owner)) }
    }
}
