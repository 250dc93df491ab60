// SPDX-License-Identifier: Apache-2.0
/// The moment when the service posts a post that it has accepted (Q2, Q7).
public enum PostingStyle: String, Sendable, CaseIterable {
    case now = "now"
    case asap = "asap"
    case whenIdle = "when-idle"
    /// When the poster leaves the bus for any reason (R4).
    case atExit = "at-exit"
}

extension PostingStyle: Comparable {
    /// A more urgent style is less.
    public static func < (left: PostingStyle, right: PostingStyle) -> Bool {
        left.order < right.order
    }

    var order: Int {
        switch self {
        case .now: 0
        case .asap: 1
        case .whenIdle: 2
        case .atExit: 3
        }
    }
}
