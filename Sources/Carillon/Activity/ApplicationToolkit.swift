// SPDX-License-Identifier: Apache-2.0
/// A graphical toolkit that reports whether the application is active, for
/// ``DistributedNotificationCenter/followActivity(of:)``.
public enum ApplicationToolkit: String, Sendable, CaseIterable {
    /// GTK 3 or GTK 4: active while one of its windows has the keyboard focus.
    case gtk = "GTK"
    /// SDL 2: active while one of its windows has the keyboard focus.
    case sdl2 = "SDL 2"
}

/// The reason why the activity of an application cannot be followed.
public enum ActivityError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The process has not loaded the toolkit, or only an unsupported version of it.
    case toolkitNotLoaded(ApplicationToolkit)
    /// The toolkit is not initialized yet.
    case toolkitNotInitialised(ApplicationToolkit)

    public var description: String {
        switch self {
        case .toolkitNotLoaded(let toolkit): "this process has not loaded \(toolkit.rawValue)"
        case .toolkitNotInitialised(let toolkit): "\(toolkit.rawValue) is not initialized yet"
        }
    }
}
