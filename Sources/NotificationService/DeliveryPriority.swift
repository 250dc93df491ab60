import MainLoop
import NotificationCore

/// What the service does, and the priority in its GMainContext that each has (M6): a smaller number goes first. The one
/// table is ``table``.
enum DeliveryPriority {
    enum Work {
        /// Answers to probes and their timers. Suspending, resuming and forgetting a client are done as they are read.
        case control
        /// Deliveries that a poster, or a suspended client's observer, wants at once (S3).
        case immediate
        case eventTracking
        case modalPanel
        /// Receiving, matching, and writing out what the socket did not take.
        case reading
        /// Posts of the style asap.
        case asap
        /// Deliveries in the default mode.
        case standard
        /// Posts of the style when-idle.
        case whenIdle
    }

    struct Row {
        let work: Work
        let priority: Int32
        let reason: String
    }

    static let table: [Row] = [
        Row(
            work: .control, priority: -100,
            reason: "G_PRIORITY_HIGH, like Unix signals: whether a client reads decides about all that follows"),
        Row(
            work: .immediate, priority: -80,
            reason: "ahead of every mode, and of reading, which would let more come before it"),
        Row(
            work: .eventTracking, priority: -60,
            reason: "ahead of reading: what is urgent never waits for what has not been read yet"),
        Row(work: .modalPanel, priority: -40, reason: "between event tracking and the rest, and ahead of reading too"),
        Row(
            work: .reading, priority: -20,
            reason: "ahead of the default mode, so that something urgent is found behind a burst of the ordinary; "
                + "how far is bounded by the core (Turns) and by DeliveryTurns, so that the default mode goes on"),
        Row(
            work: .asap, priority: -20,
            reason: "beside reading: in the iteration after the one that read it, and never starved by a flood of posts"
        ),
        Row(
            work: .standard, priority: 0,
            reason: "G_PRIORITY_DEFAULT; before GTK's resizing (110) and redrawing (120), which this loop does not have"
        ),
        Row(
            work: .whenIdle, priority: 200,
            reason: "G_PRIORITY_DEFAULT_IDLE: nothing else is ready; before G_PRIORITY_LOW (300)"),
    ]

    static func of(_ work: Work) -> EventSource.Priority {
        EventSource.Priority(rawValue: table.first { $0.work == work }!.priority)
    }

    static func of(lane: DeliveryLane) -> EventSource.Priority {
        switch lane {
        case .flushed: of(.control)
        case .immediate: of(.immediate)
        case .eventTracking: of(.eventTracking)
        case .modalPanel: of(.modalPanel)
        case .standard: of(.standard)
        }
    }
}
