// SPDX-License-Identifier: Apache-2.0
/// What is known about whether a connection reads (A4, B6).
public enum FlowState: String, Sendable, CaseIterable {
    /// It may be sent more.
    case open = "open"
    /// It was sent all that may be on its way without an answer, or all together were; the rest waits.
    case waiting = "waiting"
    /// It has never answered, though it was sent as much: it stopped early, or its library does not know how to. It is
    /// sent more as far as another witness tells that it reads.
    case unanswered = "unanswered"
}
