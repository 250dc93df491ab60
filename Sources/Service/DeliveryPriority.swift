// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

extension EventSource.Priority {
    /// Returns the loop priority at which ``DeliverySources`` sends the due messages of a lane, from the table of all
    /// priorities (``of(_:in:)``).
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
