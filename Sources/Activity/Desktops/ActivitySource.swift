// SPDX-License-Identifier: Apache-2.0
/// A source of events about the active window, for one kind of desktop (A3). ``ActivityFollower`` creates and starts
/// it.
///
/// A source is started once, reports on the loop's thread, and never blocks. On failure it reports
/// ``ActivityEvent/ended(reason:)`` and stops; a new source replaces it later. Releasing a source stops it.
protocol ActivitySource: AnyObject {
    /// Receives each event of the source. Set it before ``start()``.
    var onEvent: ((ActivityEvent) -> Void)? { get set }
    /// Whether the source reports which windows are visible (``ActivityEvent/window(_:isHidden:)``), if the desktop
    /// supports it. Set it before ``start()``.
    var watchesVisibility: Bool { get set }
    /// Starts the source.
    func start()
    /// Asks the desktop for an answer, which the source reports as ``ActivityEvent/alive`` or any other event. The
    /// liveness check calls it while the source reports the active window.
    func requestAnswer()
}

/// An event of a source.
enum ActivityEvent: Equatable {
    /// The desktop's own process, which is never suspended.
    case compositor(UInt32)
    /// The active window; nil for none.
    case focused(ActivityWindow?)
    /// A part of the desktop itself, which is always visible: a panel, the desktop's background.
    case shell(ActivityWindow)
    /// A window with its visibility, independent of the focus. It is hidden if it is minimised, or on a workspace that
    /// is not shown. If requested, it is reported for each window and at each change.
    case window(ActivityWindow, isHidden: Bool)
    /// An answer to ``ActivitySource/requestAnswer()``, without a change.
    case alive
    /// A closed window, or a window that is no longer accessible to the user.
    case closed(WindowID)
    /// The active window is unknown for now. The source continues, and reports when it is known again.
    case undecided(reason: String)
    /// The source is lost.
    case ended(reason: String)
}

/// The identifier of a window within its source.
typealias WindowID = String

/// A window, and its owner as reported by the desktop.
struct ActivityWindow: Equatable {
    let id: WindowID
    /// The process; nil or 0 if the desktop does not report it.
    var processID: UInt32?
    /// The application's id, which is the name of its desktop file; nil if the desktop does not report it.
    var application: String?
    var kind = Kind.application
    /// The owners of the windows that this window is transient for, as a dialog is for its main window. If this window
    /// is active, their applications are active too, even if they run in other processes.
    var transientFor: [WindowOwner] = []

    /// The effect of a window on its application's activity.
    enum Kind: String {
        /// A normal window: the application is active if one of these windows is active.
        case application
        /// A part of the desktop itself, which is always visible: dock, panel, background.
        case shell
        /// A short-lived window: notification, on-screen display, menu, tooltip, splash screen. An application with
        /// only such windows has no window that could be active.
        case passing
    }

    /// The owner of a window, as reported by its desktop.
    struct WindowOwner: Equatable {
        /// The process; nil or 0 if the desktop does not report it.
        var processID: UInt32?
        /// The application's id; nil if the desktop does not report it.
        var application: String?
    }

    /// The owner of this window.
    var statedOwner: WindowOwner { WindowOwner(processID: processID, application: application) }
}
