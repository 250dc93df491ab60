// SPDX-License-Identifier: Apache-2.0
/// Whether the application behind a client is active, as far as the desktop tells (A1).
public enum Activity: String, Sendable, CaseIterable {
    /// Nobody knows: there is no source, it was lost, or it knows no window of the client. Counts as active (A2).
    case unknown = "unknown"
    case active = "active"
    case inactive = "inactive"
}
