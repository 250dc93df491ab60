// SPDX-License-Identifier: Apache-2.0
/// The activity of the application behind a client, as far as the desktop reports it (A1).
public enum Activity: String, Sendable, CaseIterable {
    /// There is no source of activity, it was lost, or it knows no window of the client. Counts as active (A2).
    case unknown = "unknown"
    case active = "active"
    case inactive = "inactive"
}
