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
