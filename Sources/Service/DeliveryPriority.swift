// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

extension EventSource.Priority {
    /// Returns the priority of a lane's deliveries, from the one table of priorities (``of(_:in:)``).
    static func of(lane: DeliveryLane) -> EventSource.Priority {
        switch lane {
        case .flushed: of(.control)
        case .immediate: of(.immediate)
        case .eventTracking: of(.delivery, in: .eventTracking)
        case .modalPanel: of(.delivery, in: .modalPanel)
        case .standard: of(.delivery)
        }
    }
}
