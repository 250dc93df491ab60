// SPDX-License-Identifier: Apache-2.0
/// The state of a connection's flow control, as the service shows it (A4, B6).
public enum FlowState: String, Sendable, CaseIterable {
    /// More messages may be sent.
    case open = "open"
    /// No message is sent before an acknowledgment: two windows are unacknowledged, or the in-flight quota is used up.
    /// Messages wait in the service.
    case waiting = "waiting"
    /// Two windows are unacknowledged, and the connection has never answered a probe. The program may have stopped, or
    /// its library does not answer. More is sent as the unread bytes of its socket, or a slow fixed rate, allow
    /// (`docs/flow-control.md`).
    case unanswered = "unanswered"
}
