// SPDX-License-Identifier: Apache-2.0
/// The statement that decides whether a client is suspended. The service sends it with each change of suspension.
public enum SuspensionCause: String, Sendable {
    /// No statement: the client is not suspended.
    case none = "none"
    /// The client's own choice, `SetSuspended`.
    case explicit = "explicit"
    /// The activity of the client's application on the desktop.
    case activity = "activity"
    /// The override of a program that tests the application (B3).
    case override = "override"
}
