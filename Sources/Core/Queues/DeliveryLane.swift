// SPDX-License-Identifier: Apache-2.0
/// The urgency class of a due notification (M6). Each class is a lane of the send schedule, and each client has a queue
/// for each lane. A more urgent lane is sent first; within a lane the order of the posts is kept over all clients (D4).
///
/// The raw value is part of the recovery log's format; a smaller one is more urgent.
public enum DeliveryLane: Int, CaseIterable, Comparable, Sendable {
    /// Notifications that were held for a suspended client, and became due when it was resumed. They are sent at once,
    /// before anything newer, without regard to the run-loop modes of their observers (S2).
    case flushed = 0
    /// Posts with immediate delivery, and notifications for observers of a suspended client that deliver immediately
    /// (S3).
    case immediate = 1
    /// Notifications for observers with the run-loop mode of the same name. The most urgent observer of a client
    /// decides.
    case eventTracking = 2
    /// As ``eventTracking``, with its own mode.
    case modalPanel = 3
    /// Notifications for observers with the default run-loop mode.
    case standard = 4

    init(_ mode: RunLoopMode) {
        switch mode {
        case .eventTracking: self = .eventTracking
        case .modalPanel: self = .modalPanel
        case .default: self = .standard
        }
    }

    /// A more urgent lane is less.
    public static func < (left: DeliveryLane, right: DeliveryLane) -> Bool {
        left.rawValue < right.rawValue
    }
}
