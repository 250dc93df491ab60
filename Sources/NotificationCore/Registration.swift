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

    public init(
        suspensionBehavior: SuspensionBehavior = .coalesce, automaticSuspension: Bool = true,
        runLoopMode: RunLoopMode = .default
    ) {
        self.suspensionBehavior = suspensionBehavior
        self.automaticSuspension = automaticSuspension
        self.runLoopMode = runLoopMode
    }
}

/// When the service posts what a poster hands it (Q2, Q7).
public enum PostingStyle: String, Sendable, CaseIterable {
    case now = "now"
    case asap = "asap"
    case whenIdle = "when-idle"
}

/// A part of a notification by which posts in a poster's queue coalesce (Q3, Q7).
public enum CoalescingKey: String, Sendable, CaseIterable {
    case name = "name"
    case object = "object"
}

/// What a poster may ask for.
public struct PostOptions: Equatable, Sendable {
    /// Deliver also to suspended clients, after what they hold (S3), and ahead of what is due in any mode (M6).
    public var deliverImmediately = false
    /// When the service posts it (Q7).
    public var postingStyle = PostingStyle.now
    /// What makes two posts of one poster similar (Q7); empty means that they never are.
    public var coalescing: Set<CoalescingKey> = []

    public init() {}
}

/// One registration: who wants what, and how.
public struct Registration: Sendable {
    public let id: ObserverID
    public let client: ClientName
    /// Nil means any.
    public let name: String?
    /// Nil means any.
    public let object: String?
    public let options: ObserverOptions

    public init(id: ObserverID, client: ClientName, name: String?, object: String?, options: ObserverOptions) {
        self.id = id
        self.client = client
        self.name = name
        self.object = object
        self.options = options
    }
}
