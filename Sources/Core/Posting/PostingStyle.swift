// SPDX-License-Identifier: Apache-2.0
/// The time at which the service posts an accepted post (Q2, Q7).
public enum PostingStyle: String, Sendable, CaseIterable {
    /// At once, ahead of the queued posts of its poster.
    case now = "now"
    /// In the next iterations of the service's main loop, first in, first out for each poster.
    case asap = "asap"
    /// When the service is idle: nothing has arrived for 50 ms.
    case whenIdle = "when-idle"
    /// When the poster leaves the bus for any reason: a last will (R4).
    case atExit = "at-exit"
}

extension PostingStyle: Comparable {
    /// A more urgent style is less.
    public static func < (left: PostingStyle, right: PostingStyle) -> Bool {
        left.order < right.order
    }

    /// The urgency of the style, from 0; the index in arrays by style.
    var order: Int {
        switch self {
        case .now: 0
        case .asap: 1
        case .whenIdle: 2
        case .atExit: 3
        }
    }
}
