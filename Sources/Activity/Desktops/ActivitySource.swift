// SPDX-License-Identifier: Apache-2.0
/// One way to learn which application is active (A3).
///
/// A source is started once and reports from the loop. It never blocks. When it can't go on it says so with
/// ``ActivityEvent/ended(reason:)`` and is done; a new one takes its place later. Letting go of it stops it.
protocol ActivitySource: AnyObject {
    /// Gets everything that the source reports. Set before ``start()``.
    var onEvent: ((ActivityEvent) -> Void)? { get set }
    /// Whether it is to tell which windows can be seen (``ActivityEvent/window(_:isHidden:)``), as far as the desktop
    /// does. Set before ``start()``.
    var watchesVisibility: Bool { get set }
    func start()
    /// Asks the desktop for a sign that it still tells: ``ActivityEvent/alive``, or any other event. Called after
    /// ``start()``, while the source is followed.
    func askForSign()
}

/// What a source tells.
enum ActivityEvent: Equatable {
    /// The desktop's own process, which is never suspended.
    case compositor(UInt32)
    /// The window that is active now; nil for none.
    case focused(ActivityWindow?)
    /// A part of the desktop itself is there, and can be seen whatever is active: a panel, the desktop's background.
    case shell(ActivityWindow)
    /// A window is there, whether or not it ever has the focus, and can be seen or not: it is hidden when it is minimised or
    /// on a workspace that is not shown. Told where that is wanted, of each window and with each change.
    case window(ActivityWindow, isHidden: Bool)
    /// Nothing is new, but the desktop answered.
    case alive
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
    var kind = Kind.application
    /// Whose the windows are that this one is transient for, as a dialog is for the window that it belongs to: those
    /// applications are active with it, though another process shows it.
    var transientFor: [Party] = []

    /// What a window means for the application that has it.
    enum Kind: String {
        /// It comes to the front and goes to the back: with it its application is active, and without it is not.
        case application
        /// A part of the desktop itself, which a person sees whatever is active: dock, panel, background.
        case shell
        /// There for a moment: notification, on-screen display, menu, tooltip, splash screen. An application that has
        /// nothing else has no window that could be active.
        case passing
    }

    /// Whose a window is, as far as its desktop tells.
    struct Party: Equatable {
        /// Nil, or 0, when the desktop does not tell.
        var processID: UInt32?
        var application: String?
    }

    var party: Party { Party(processID: processID, application: application) }
}
