// SPDX-License-Identifier: Apache-2.0
/// The reason why a client is suspended or not.
public enum SuspensionCause: String, Sendable {
    /// Nothing suspends the client.
    case none = "none"
    /// The client's own choice.
    case explicit = "explicit"
    /// The activity of its application.
    case activity = "activity"
    /// The choice of another program that tests the application (B3).
    case override = "override"
}
