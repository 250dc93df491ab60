// SPDX-License-Identifier: Apache-2.0
/// The urgency class of a due notification (M6). A more urgent lane goes first; within a lane the order is global (D4).
///
/// The number is part of the recovery log's format.
public enum DeliveryLane: Int, CaseIterable, Comparable, Sendable {
    /// Formerly held notifications that are due now, before anything newer and regardless of their modes (S2). The core
    /// sends them at once.
    case flushed = 0
    /// Posts with immediate delivery, and deliveries to immediate observers of suspended clients (S3).
    case immediate = 1
    case eventTracking = 2
    case modalPanel = 3
    case standard = 4

    init(_ mode: RunLoopMode) {
        switch mode {
        case .eventTracking: self = .eventTracking
        case .modalPanel: self = .modalPanel
        case .default: self = .standard
        }
    }

    public static func < (left: DeliveryLane, right: DeliveryLane) -> Bool {
        left.rawValue < right.rawValue
    }
}
