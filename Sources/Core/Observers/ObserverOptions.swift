// SPDX-License-Identifier: Apache-2.0
/// The treatment of notifications that an observer matches while its client is suspended (S1).
public enum SuspensionBehavior: String, Sendable, CaseIterable {
    case drop = "drop"
    case coalesce = "coalesce"
    case hold = "hold"
    case deliverImmediately = "deliver-immediately"
}

/// The run-loop mode with which an observer can register at the service (M6).
public enum RunLoopMode: String, Sendable, CaseIterable {
    case `default` = "default"
    case modalPanel = "modal-panel"
    case eventTracking = "event-tracking"
}

/// The options of an observer.
public struct ObserverOptions: Hashable, Sendable {
    public var suspensionBehavior: SuspensionBehavior
    /// Whether inactivity may suspend the client. False keeps the whole client from being suspended by inactivity (A2).
    public var automaticSuspension: Bool
    public var runLoopMode: RunLoopMode
    /// Whether the observer monitors (B3). Posters do not count a monitor as a receiver, and it is never suspended.
    public var isMonitor: Bool
    /// Whether the observer gets the retained values that exist when it registers (R2).
    public var wantsRetained: Bool
    /// The minimum interval between two notifications with the same name and object, in milliseconds (R5); 0 for none.
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

    /// The effective behavior while the client is suspended.
    public var behaviorWhileSuspended: SuspensionBehavior { isMonitor ? .deliverImmediately : suspensionBehavior }
}
