// SPDX-License-Identifier: Apache-2.0
/// How urgent what is due to a client is (M6). The more urgent goes first; within a lane order is global (D4).
///
/// The number is part of the recovery log's format.
public enum DeliveryLane: Int, CaseIterable, Comparable, Sendable {
    /// What was held and is due by now, before anything newer, whatever its mode (S2). The core sends it at once.
    case flushed = 0
    /// What the poster wants delivered immediately, and what a suspended client's observer does (S3).
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
