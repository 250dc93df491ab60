// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// GNOME Shell, which tells ordinary programs nothing. Its extension `carillon-activity@carillon.org`, which the user
/// has to enable, reports the focus.
///
/// Nobody can tell whether the extension is there before it reports: until then everybody is active.
final class GNOMEShellSource: ReportedSource {
    init(bus: any MessageBus) {
        super.init(peer: "org.gnome.Shell", bus: bus)
    }

    /// The extension reports by itself when the service appears on the bus. One that is asked later, after a change of
    /// the configuration, is asked by a signal.
    override func desktopFound() {
        if watchesVisibility, let owner { bus.send(ActivityInterface.VisibilityRequested().signal(to: owner)) }
        askForSign()
    }

    /// The extension answers by reporting the focus again.
    override func askForSign() {
        if let owner { bus.send(ActivityInterface.ReportRequested().signal(to: owner)) }
    }
}
