// SPDX-License-Identifier: Apache-2.0
/// Why a client is suspended or not.
public enum SuspensionCause: String, Sendable {
    /// Nothing suspends it.
    case none = "none"
    /// The client said so.
    case explicit = "explicit"
    /// Its application's activity.
    case activity = "activity"
    /// Somebody else, who tests its application (B3).
    case override = "override"
}
