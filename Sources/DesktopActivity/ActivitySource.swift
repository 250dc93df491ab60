import MainLoop

/// One way to learn which application is active (A3).
///
/// A source is started once and reports from the loop. It never blocks. When it can't go on it says so with
/// ``ActivityEvent/ended(reason:)`` and is done; a new one takes its place later. Letting go of it stops it.
protocol ActivitySource: AnyObject {
    /// Gets everything that the source reports. Set before ``start()``.
    var onEvent: ((ActivityEvent) -> Void)? { get set }
    func start()
}

/// What a source tells.
enum ActivityEvent: Equatable {
    /// The desktop's own process, which is never suspended.
    case compositor(UInt32)
    /// The window that is active now; nil for none.
    case focused(ActivityWindow?)
    /// A window is gone, or no longer one that a person can see.
    case closed(WindowID)
    /// For now nobody can tell what is active. The source goes on, and says so when it knows again.
    case undecided(reason: String)
    /// The source is lost.
    case ended(reason: String)
}

/// A window's name among those of its source.
typealias WindowID = String

/// A window, and what its desktop tells of whose it is.
struct ActivityWindow: Equatable {
    let id: WindowID
    /// Nil, or 0, when the desktop does not tell.
    var processID: UInt32?
    /// The application's id, as desktop files are named; nil when the desktop does not tell.
    var application: String?
}

/// The sources that there are, by their names in the configuration and on the bus.
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
}
