// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Synchronization

/// Suspension by the application's own word about its activity, as AppKit does it (A1): for desktops that tell nobody
/// which application is active, and for programs that know better.
extension DistributedNotificationCenter {
    /// How long an application is inactive before it is suspended. Switching through windows passes by many.
    static let suspensionDelay = DispatchTimeInterval.milliseconds(250)

    /// Whether the application is active. Setting it to false suspends the program a quarter of a second later, if it
    /// is still inactive then; setting it to true resumes it at once.
    ///
    /// This is the program's own statement, as ``suspended`` is: it goes before what the service sees of the desktop, and false
    /// also before what a toolkit reports (``followActivity(of:)``). ``followActivity()`` takes it back. Read, it is the latest
    /// of the program's statements and the toolkit's reports; true without any.
    public var isActive: Bool {
        get { state.withLock { $0.isActive } }
        set {
            changeActivity { state in
                (state.isInactiveByProgram, state.isActive) = (!newValue, newValue)
                // It takes ``suspended`` back as well.
                state.isSuspendedByActivity = true
            }
        }
    }

    /// The toolkit says whether a window is active. A program that has said that it is not has windows that nobody sees.
    func toolkitReports(_ isActive: Bool) {
        let isNews = state.withLock { state in
            defer { state.toolkitActivity = isActive }
            return !state.isInactiveByProgram && state.isActive != isActive
        }
        if isNews { changeActivity { if !$0.isInactiveByProgram { $0.isActive = isActive } } }
    }

    /// Takes back what the program has said with ``suspended`` and ``isActive``: from now on the activity of the application
    /// decides, where the desktop tells it, or a toolkit that is followed (A2).
    public func followActivity() {
        state.withLock { state in
            state.activityGeneration += 1
            (state.isInactiveByProgram, state.isActive) = (false, true)
            state.suspendedByProgram = nil
            submit(.suspend(nil))
        }
        if state.withLock({ $0.toolkitActivity == false }) { toolkitReports(false) }
    }

    private func changeActivity(_ change: (inout State) -> Void) {
        let (isActive, generation) = state.withLock { state in
            change(&state)
            state.activityGeneration += 1
            if state.isActive, state.suspendedByProgram == true, state.isSuspendedByActivity {
                state.suspendedByProgram = false
                submit(.suspend(false))
            }
            return (state.isActive, state.activityGeneration)
        }
        guard !isActive else { return }
        DispatchQueue.global().asyncAfter(deadline: .now() + Self.suspensionDelay) { [weak self] in
            guard let self else { return }
            state.withLock { state in
                // Any later change has the higher number, and decides.
                guard state.activityGeneration == generation else { return }
                (state.suspendedByProgram, state.isSuspendedByActivity) = (true, true)
                submit(.suspend(true))
            }
        }
    }

    /// Suspends and resumes this program as the windows of its toolkit lose and get the keyboard focus.
    ///
    /// ```swift
    /// gtk_init()  // GTK 4, where no GtkApplication does it
    /// try DistributedNotificationCenter.default().followActivity(of: .gtk)
    /// ```
    ///
    /// Call it once, on the main thread, after the toolkit was initialised; windows may come and go later. The toolkit
    /// is found in the process, and need not be known at build time. An application without any window counts as
    /// active (A2), and one that hides its windows sets ``isActive`` to false until it shows them.
    ///
    /// - Throws: ``ActivityError``.
    public func followActivity(of toolkit: ApplicationToolkit) throws(ActivityError) {
        let report: @Sendable (Bool) -> Void = { [weak self] isActive in self?.toolkitReports(isActive) }
        switch toolkit {
        case .gtk: try GTKActivity.follow(report)
        case .sdl2: try SDLActivity.follow(report)
        }
    }
}
