// SPDX-License-Identifier: Apache-2.0
/// What a suspended client's observer wants done with a notification that it matches (S1).
public enum SuspensionBehavior: String, Sendable, CaseIterable {
    case drop = "drop"
    case coalesce = "coalesce"
    case hold = "hold"
    case deliverImmediately = "deliver-immediately"
}

/// The run-loop modes that an observer can register for at the service (M6).
public enum RunLoopMode: String, Sendable, CaseIterable {
    case `default` = "default"
    case modalPanel = "modal-panel"
    case eventTracking = "event-tracking"
}

/// What an observer may ask for when it registers.
public struct ObserverOptions: Hashable, Sendable {
    public var suspensionBehavior: SuspensionBehavior
    /// False keeps the whole client from being suspended by inactivity (A2).
    public var automaticSuspension: Bool
    public var runLoopMode: RunLoopMode
    /// Looks on (B3): what it gets counts for nobody who posts, and it is never suspended.
    public var isMonitor: Bool
    /// Wants the values that there are when it registers (R2).
    public var wantsRetained: Bool
    /// At most one notification of a name and object in so many milliseconds (R5); 0 for all.
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

    /// What it gets while its client is suspended.
    public var behaviorWhileSuspended: SuspensionBehavior { isMonitor ? .deliverImmediately : suspensionBehavior }
}
