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
    /// This is the program's own word, as ``suspended`` is: it goes before what the service sees of the desktop, and
    /// ``followActivity()`` takes it back.
    public var isActive: Bool {
        get { state.withLock { $0.isActive } }
        set {
            let generation = state.withLock { state in
                state.isActive = newValue
                state.activityGeneration += 1
                if newValue, state.suspendedByProgram == true {
                    state.suspendedByProgram = false
                    submit(.suspend(false))
                }
                return state.activityGeneration
            }
            guard !newValue else { return }
            DispatchQueue.global().asyncAfter(deadline: .now() + Self.suspensionDelay) { [weak self] in
                guard let self else { return }
                state.withLock { state in
                    // Any later change has the higher number, and decides.
                    guard state.activityGeneration == generation else { return }
                    state.suspendedByProgram = true
                    submit(.suspend(true))
                }
            }
        }
    }

    /// Suspends and resumes this program as the windows of its toolkit lose and get the keyboard focus.
    ///
    /// ```swift
    /// gtk_init(nil, nil)
    /// try DistributedNotificationCenter.default().followActivity(of: .gtk)
    /// ```
    ///
    /// Call it once, on the main thread, after the toolkit was initialised; windows may come and go later. The toolkit
    /// is found in the process, and need not be known at build time. An application without any window counts as
    /// active (A2).
    ///
    /// - Throws: ``ActivityError``.
    public func followActivity(of toolkit: ApplicationToolkit) throws(ActivityError) {
        let report: @Sendable (Bool) -> Void = { [weak self] isActive in
            guard let self, self.isActive != isActive else { return }
            self.isActive = isActive
        }
        switch toolkit {
        case .gtk: try GTKActivity.follow(report)
        case .sdl2: try SDLActivity.follow(report)
        }
    }
}
