// SPDX-License-Identifier: Apache-2.0
/// The knowledge of whether a connection reads (A4, B6).
public enum FlowState: String, Sendable, CaseIterable {
    /// The connection may be sent more.
    case open = "open"
    /// The connection has used up its window, or is blocked on the in-flight quota of all connections; the rest waits.
    case waiting = "waiting"
    /// The connection has used up its window and never answered a probe: it stopped early, or its library does not
    /// answer. It is sent more as far as its unread socket data, or a slow fixed rate, allows (`docs/flow-control.md`).
    case unanswered = "unanswered"
}
