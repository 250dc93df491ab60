// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The kinds of activity sources, by their names in the configuration and on the bus.
///
/// To support another desktop, add a file with its ``ActivitySource`` to this folder, and register it here: its name,
/// the sessions that offer it, and its initializer.
package enum ActivitySourceKind: String, CaseIterable, Sendable {
    case x11 = "x11"
    case sway = "sway"
    case kwin = "kwin"
    case gnome = "gnome"
    case foreignToplevel = "wlr-foreign-toplevel"

    /// Returns the kinds that can work in a session, the best first.
    ///
    /// In a Wayland session an X server serves only some applications and reports nothing about the others.
    static func offered(by session: SessionEnvironment) -> [ActivitySourceKind] {
        var kinds: [ActivitySourceKind] = []
        if session[.swaySocket] != nil { kinds.append(.sway) }
        if session.isWayland {
            if session.desktops.contains("KDE") { kinds.append(.kwin) }
            if session.desktops.contains("GNOME") { kinds.append(.gnome) }
            if session[.waylandDisplay] != nil { kinds.append(.foreignToplevel) }
        } else if kinds.isEmpty, session.hasLocalDisplay {
            kinds.append(.x11)
        }
        return kinds
    }

    /// The advice to a user whose source reports nothing, as a sentence without its full stop. The status and the log
    /// show it.
    var advice: String {
        switch self {
        case .x11: "a window manager that sets _NET_ACTIVE_WINDOW has to run on the display"
        case .sway: "SWAYSOCK has to name the socket of the running sway"
        case .kwin: "KWin has to run scripts; on SIGHUP the service loads its script again"
        case .gnome: "enable its extension: gnome-extensions enable carillon-activity@carillon.org"
        case .foreignToplevel: "the compositor has to offer zwlr_foreign_toplevel_manager_v1"
        }
    }

    /// Creates a source of this kind.
    ///
    /// - Parameters:
    ///   - session: The environment of the desktop.
    ///   - bus: The bus for desktops that are queried, or report, over it.
    ///   - uniqueName: The unique name on `bus`.
    func makeSource(
        in session: SessionEnvironment, bus: any MessageBus, uniqueName: UniqueName
    ) -> any ActivitySource {
        switch self {
        case .x11: X11Source(session: session, context: bus.context)
        case .sway: SwaySource(session: session, context: bus.context)
        case .foreignToplevel: ForeignToplevelSource(session: session, context: bus.context)
        case .gnome: GNOMEShellSource(bus: bus)
        case .kwin:
            KWinSource(
                bus: bus, directory: (session[.runtimeDirectory] ?? "") + "/carillon", uniqueName: uniqueName)
        }
    }
}

extension SessionEnvironment {
    /// Whether the environment names a desktop.
    var hasDesktop: Bool { !ActivitySourceKind.offered(by: self).isEmpty }
}
