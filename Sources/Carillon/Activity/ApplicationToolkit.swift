// SPDX-License-Identifier: Apache-2.0
/// A toolkit that knows whether the application is active.
public enum ApplicationToolkit: String, Sendable, CaseIterable {
    /// GTK 3 or GTK 4: active while one of its windows has the keyboard focus.
    case gtk = "GTK"
    /// SDL 2: active while one of its windows has the keyboard focus.
    case sdl2 = "SDL 2"
}

/// Why the activity of an application can't be followed.
public enum ActivityError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The process has not loaded the toolkit, or not in a version that is known here.
    case toolkitNotLoaded(ApplicationToolkit)
    /// The toolkit was not initialised yet.
    case toolkitNotInitialised(ApplicationToolkit)

    public var description: String {
        switch self {
        case .toolkitNotLoaded(let toolkit): "this process has not loaded \(toolkit.rawValue)"
        case .toolkitNotInitialised(let toolkit): "\(toolkit.rawValue) is not initialised yet"
        }
    }
}
