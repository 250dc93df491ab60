// SPDX-License-Identifier: Apache-2.0
/// The treatment of notifications for an observer while its client is suspended (S1).
public enum SuspensionBehavior: String, Sendable, CaseIterable {
    /// The observer gets none of them.
    case drop = "drop"
    /// The newest notification of each key, which is its name, object and origin, is held until the client is resumed.
    case coalesce = "coalesce"
    /// All notifications are held until the client is resumed.
    case hold = "hold"
    /// Notifications are delivered in spite of the suspension, after the held ones.
    case deliverImmediately = "deliver-immediately"
}

/// The run-loop mode of an observer, as the service knows it: the urgency of its notifications (M6).
public enum RunLoopMode: String, Sendable, CaseIterable {
    case `default` = "default"
    case modalPanel = "modal-panel"
    case eventTracking = "event-tracking"
}

/// The options of an observer.
public struct ObserverOptions: Hashable, Sendable {
    public var suspensionBehavior: SuspensionBehavior
    /// Whether the activity of the application may suspend the client. One observer with false keeps the whole client
    /// from being suspended in this way (A2).
    public var automaticSuspension: Bool
    public var runLoopMode: RunLoopMode
    /// Whether the observer is a monitor (B3). It does not count as a receiver of a post, and gets notifications also
    /// while its client is suspended.
    public var isMonitor: Bool
    /// Whether the observer gets the retained values that exist when it registers (R2).
    public var wantsRetained: Bool
    /// The minimum interval between two notifications with the same name, object and origin, in milliseconds (R5); 0
    /// for none.
    public var minimumInterval: UInt32

    public init(
        suspensionBehavior: SuspensionBehavior = .coalesce, automaticSuspension: Bool = true,
        runLoopMode: RunLoopMode = .default, isMonitor: Bool = false, wantsRetained: Bool = false,
        minimumInterval: UInt32 = 0
    ) {
        self.suspensionBehavior = suspensionBehavior
        self.automaticSuspension = automaticSuspension
        self.runLoopMode = runLoopMode
        self.isMonitor = isMonitor
        self.wantsRetained = wantsRetained
        self.minimumInterval = minimumInterval
    }

    /// The behavior that applies: that of a monitor is always immediate delivery.
    public var behaviorWhileSuspended: SuspensionBehavior { isMonitor ? .deliverImmediately : suspensionBehavior }
}
