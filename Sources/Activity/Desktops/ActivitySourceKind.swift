// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The sources that there are, by their names in the configuration and on the bus.
///
/// A new desktop has a file in this folder, with its ``ActivitySource``, and is entered here: with its name, the sessions
/// that offer it, and how it is made.
package enum ActivitySourceKind: String, CaseIterable, Sendable {
    case x11 = "x11"
    case sway = "sway"
    case kwin = "kwin"
    case gnome = "gnome"
    case foreignToplevel = "wlr-foreign-toplevel"

    /// Those that can work in a session, the best first.
    ///
    /// On Wayland the X server is one for some applications only, and tells nothing of the others.
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

    /// What a person can do when it tells nothing, in a sentence without its full stop.
    var advice: String {
        switch self {
        case .x11: "a window manager that sets _NET_ACTIVE_WINDOW has to run on the display"
        case .sway: "SWAYSOCK has to name the socket of the sway that runs"
        case .kwin: "KWin has to run scripts; on SIGHUP the service has it load ours again"
        case .gnome: "enable its extension: gnome-extensions enable carillon-activity@carillon.org"
        case .foreignToplevel: "the compositor has to offer zwlr_foreign_toplevel_manager_v1"
        }
    }

    /// - Parameters:
    ///   - bus: for desktops that are asked, or report, over the bus.
    ///   - uniqueName: of `bus`.
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
    /// Whether it names a desktop at all.
    var hasDesktop: Bool { !ActivitySourceKind.offered(by: self).isEmpty }
}
