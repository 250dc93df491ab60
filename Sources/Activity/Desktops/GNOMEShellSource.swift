// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The source for GNOME Shell, which reports nothing to ordinary programs. Its extension
/// `carillon-activity@carillon.org`, which the user has to enable, reports the focus.
///
/// The presence of the extension is unknown before its first report; until then all clients count as active.
final class GNOMEShellSource: ReportedSource {
    init(bus: any MessageBus) {
        super.init(peer: "org.gnome.Shell", bus: bus)
    }

    /// Requests a report. The extension reports by itself when the service appears on the bus; after a later change of
    /// the configuration it is asked with a signal.
    override func desktopFound() {
        if watchesVisibility, let owner { bus.send(ActivityInterface.VisibilityRequested().signal(to: owner)) }
        askForSign()
    }

    /// Asks the extension to report the focus again.
    override func askForSign() {
        if let owner { bus.send(ActivityInterface.ReportRequested().signal(to: owner)) }
    }
}
