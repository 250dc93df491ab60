// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// What a source does, as far as its place among other sources depends on it (M2, M6).
public enum LoopWork: Sendable, CaseIterable {
    // In a program

    /// A notification queue's posts of the style *as soon as possible* (Q2).
    case asap
    /// A notification that came from another process or thread.
    case ordinary
    /// A notification queue's posts of the style *when idle* (Q2).
    case whenIdle
    /// Nothing: it sees that the loop has come to drawing (M3).
    case mark
    /// Nothing: it keeps the loop from being idle while a source rests (M3).
    case floor

    // In the service

    /// Answers to probes and their timers, and what was held and is flushed. Suspending, resuming and forgetting a
    /// client are done as they are read.
    case control
    /// Deliveries that a poster, or a suspended client's observer, wants at once (S3).
    case immediate
    /// Deliveries in the mode for which the observer registered.
    case delivery
    /// Receiving, matching, and writing out what the socket did not take.
    case reading
    /// Calls that wait because more came than could be served (E4).
    case waitingCalls
    /// Posts of the style *as soon as possible* that clients queued (Q7).
    case queuedAsap
    /// Posts of the style *when idle* that clients queued (Q7).
    case queuedWhenIdle
}

extension EventSource.Priority {
    /// The one table of priorities (M2, M6): the place of some work in a mode. A smaller number goes first.
    ///
    /// | work | event tracking | modal panel | default, custom | why there |
    /// |---|---|---|---|---|
    /// | `asap` | −1002 | −1001 | −1000 | "At the end of the current iteration" is before all that the next one finds ready, so ahead of every number in use; GLib's own begin at `G_PRIORITY_HIGH` (−100) |
    /// | `ordinary` | −20 | −10 | 0 | `G_PRIORITY_DEFAULT` (0) is where GDK's events and most timers are: neither holds up the other. Before GTK's resize (110) and redraw (120), so that what is drawn shows what arrived. In event tracking ahead of the pointer's events, which come in floods |
    /// | `whenIdle` | max − 2 | max − 1 | max | "Nothing else to do" includes GLib's idle (200) and low (300) and whatever a program put behind them |
    /// | `mark` | 119 | 119 | 119 | One ahead of GTK's redraw (120): an iteration that comes so far belongs to drawing, or to what is behind it |
    /// | `floor` | max − 3 | max − 3 | max − 3 | Behind everything of others, and ahead of `whenIdle` in each mode |
    /// | `control` | −100 | −100 | −100 | `G_PRIORITY_HIGH`, like Unix signals: whether a client reads decides about all that follows |
    /// | `immediate` | −80 | −80 | −80 | Ahead of every mode, and of reading, which would let more come before it |
    /// | `delivery` | −60 | −40 | 0 | What is urgent is ahead of reading: it never waits for what has not been read yet. The rest at `G_PRIORITY_DEFAULT`; GTK's numbers are behind it, but not in this loop |
    /// | `reading` | −20 | −20 | −20 | Ahead of the default mode, so that something urgent is found behind a burst of the ordinary; how far is bounded by the core and by the service, so that the default mode goes on |
    /// | `waitingCalls` | −10 | −10 | −10 | Behind reading, so that who calls rarely never waits behind those who call too much; a timer serves some of them all the same. Ahead of the default mode for the reason of reading |
    /// | `queuedAsap` | −20 | −20 | −20 | Beside reading, with a fifth of the time, or as `waitingCalls` when there is nothing to read: never starved by a flood of posts |
    /// | `queuedWhenIdle` | 200 | 200 | 200 | `G_PRIORITY_DEFAULT_IDLE`: nothing else is ready. All sources of this loop are known, so it need not stand behind `G_PRIORITY_LOW` (300) |
    ///
    /// The first five are those of a program's loop, which has the sources of others beside them; a context is in one
    /// mode at a time, so only those of one column are ever ready. The others are those of the service's loop, which has
    /// none but its own. It has the modes of its clients side by side, and there the columns order them (M6).
    public static func of(_ work: LoopWork, in mode: RunLoopMode = .default) -> EventSource.Priority {
        let urgency: Int32 =
            switch mode {
            case .eventTracking: 2
            case .modalPanel: 1
            default: 0
            }
        let number: Int32 =
            switch work {
            case .asap: -1000 - urgency
            case .ordinary: G_PRIORITY_DEFAULT - 10 * urgency
            case .whenIdle: Int32.max - urgency
            case .mark: 119
            case .floor: Int32.max - 3
            case .control: G_PRIORITY_HIGH
            case .immediate: -80
            case .delivery: urgency == 0 ? G_PRIORITY_DEFAULT : -20 - 20 * urgency
            case .reading, .queuedAsap: -20
            case .waitingCalls: -10
            case .queuedWhenIdle: G_PRIORITY_DEFAULT_IDLE
            }
        return EventSource.Priority(rawValue: number)
    }
}
