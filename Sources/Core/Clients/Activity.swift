// SPDX-License-Identifier: Apache-2.0
/// The activity of a client's application on the desktop, as `CarillonActivity` reports it to the center (A1). An
/// inactive application can suspend its client.
public enum Activity: String, Sendable, CaseIterable {
    /// No source reports activity, the source was lost, or the source knows no window of the client. It counts as
    /// active (A2).
    case unknown = "unknown"
    /// The application has the focus.
    case active = "active"
    /// The application does not have the focus. Under `inactive-when=hidden`, none of its windows can be seen.
    case inactive = "inactive"
}
