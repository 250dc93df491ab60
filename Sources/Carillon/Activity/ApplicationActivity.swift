// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Synchronization

/// Suspension by the application's own activity, as with AppKit (A1): by the program's statement ``isActive``, or by
/// reports of its toolkit. It serves desktops that do not report the active application to the service.
extension DistributedNotificationCenter {
    /// The time for which an application has to be inactive before it is suspended. Switching through windows passes
    /// many of them for a moment only.
    static let suspensionDelay = DispatchTimeInterval.milliseconds(250)

    /// Whether the application is active. Setting it to false suspends the program 250 ms later, if it is still
    /// inactive then. Setting it to true resumes the program at once.
    ///
    /// Like ``suspended``, it is the program's own statement, and precedes the service's observation of the desktop.
    /// The value false also precedes the reports of a toolkit (``followActivity(of:)``). ``followActivity()`` withdraws
    /// the statement.
    ///
    /// The value read is the latest of the program's statements and the toolkit's reports; true without any.
    public var isActive: Bool {
        get { state.withLock { $0.isActive } }
        set {
            changeActivity { state in
                (state.isInactiveByProgram, state.isActive) = (!newValue, newValue)
                // An active application also ends a suspension that the program set with ``suspended``.
                state.isSuspendedByActivity = true
            }
        }
    }

    /// Handles a toolkit's report of whether a window is active. While the program states that it is inactive, the
    /// report is recorded and has no effect: the program does so when its windows are hidden.
    func toolkitReports(_ isActive: Bool) {
        let isNews = state.withLock { state in
            defer { state.toolkitActivity = isActive }
            return !state.isInactiveByProgram && state.isActive != isActive
        }
        if isNews { changeActivity { if !$0.isInactiveByProgram { $0.isActive = isActive } } }
    }

    /// Withdraws the program's statements with ``suspended`` and ``isActive``. From now on the activity of the
    /// application decides, if the desktop or a followed toolkit reports it (A2).
    public func followActivity() {
        state.withLock { state in
            state.activityGeneration += 1
            (state.isInactiveByProgram, state.isActive) = (false, true)
            state.suspendedByProgram = nil
            submit(.suspend(nil))
        }
        // The toolkit's last report now applies.
        if state.withLock({ $0.toolkitActivity == false }) { toolkitReports(false) }
    }

    /// Changes the activity. An active application is resumed at once; an inactive one is suspended after
    /// ``suspensionDelay``, unless the activity changes meanwhile.
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
                // A later change, or the end of the statement, has increased the number.
                guard state.activityGeneration == generation else { return }
                (state.suspendedByProgram, state.isSuspendedByActivity) = (true, true)
                submit(.suspend(true))
            }
        }
    }

    /// Suspends and resumes this program as the windows of its toolkit lose and gain the keyboard focus.
    ///
    /// ```swift
    /// gtk_init()  // GTK 4, where no GtkApplication does it
    /// try DistributedNotificationCenter.default().followActivity(of: .gtk)
    /// ```
    ///
    /// Call it once, on the main thread, after the initialization of the toolkit; windows may come and go later. The
    /// toolkit is found in the process, and need not be known at build time. An application without any window counts
    /// as active (A2). An application that hides its windows sets ``isActive`` to false until it shows them.
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
