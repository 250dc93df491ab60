// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// The work of a source, as far as its priority depends on it (M2, M6).
public enum LoopWork: Sendable, CaseIterable {
    // Work in a program

    /// A notification queue's posts of the style *as soon as possible* (Q2).
    case asap
    /// A notification from another process or thread.
    case ordinary
    /// A notification queue's posts of the style *when idle* (Q2).
    case whenIdle
    /// No work: detects that the loop has reached drawing (M3).
    case mark
    /// No work: keeps the loop from being idle while a source rests (M3).
    case floor

    // Work in the service

    /// Answers to probes, their timers, and held notifications that are flushed. Suspending, resuming and removing a
    /// client happen when the messages are read.
    case control
    /// Immediate deliveries, which a poster or an observer of a suspended client requests (S3).
    case immediate
    /// Deliveries in the mode for which the observer registered.
    case delivery
    /// Receiving and matching messages, and writing output that the socket did not take at once.
    case reading
    /// Calls that wait because more calls arrived than the service could serve (E4).
    case waitingCalls
    /// Posts of the style *as soon as possible* that clients queued (Q7).
    case queuedAsap
    /// Posts of the style *when idle* that clients queued (Q7).
    case queuedWhenIdle
}

extension EventSource.Priority {
    /// Returns the priority of some work in a mode, from the one table of priorities (M2, M6). A smaller number goes
    /// first.
    ///
    /// | work | event tracking | modal panel | default, custom | reason |
    /// |---|---|---|---|---|
    /// | `asap` | −1002 | −1001 | −1000 | ahead of everything that the next iteration finds |
    /// | `ordinary` | −20 | −10 | 0 | `G_PRIORITY_DEFAULT`, beside events and timers |
    /// | `whenIdle` | max − 2 | max − 1 | max | behind all other sources of the program |
    /// | `mark` | 119 | 119 | 119 | one ahead of GTK's redraw (120) |
    /// | `floor` | max − 3 | max − 3 | max − 3 | behind all others, ahead of `whenIdle` in each mode |
    /// | `control` | −100 | −100 | −100 | `G_PRIORITY_HIGH`, like Unix signals |
    /// | `immediate` | −80 | −80 | −80 | ahead of every mode, and of reading |
    /// | `delivery` | −60 | −40 | 0 | urgent modes ahead of reading, the rest behind it |
    /// | `reading` | −20 | −20 | −20 | ahead of deliveries in the default mode |
    /// | `waitingCalls` | −10 | −10 | −10 | behind reading, ahead of the default mode |
    /// | `queuedAsap` | −20 | −20 | −20 | beside reading, so that a flood of posts never starves it |
    /// | `queuedWhenIdle` | 200 | 200 | 200 | `G_PRIORITY_DEFAULT_IDLE`: nothing else is ready |
    ///
    /// The reasons in detail:
    ///
    /// - `asap`: "at the end of the current iteration" is before everything that the next iteration finds ready, so it
    ///   is ahead of every number in use. GLib's own begin at `G_PRIORITY_HIGH` (−100).
    /// - `ordinary`: GDK's events and most timers have `G_PRIORITY_DEFAULT` (0), and neither delays the other. It is
    ///   before GTK's resize (110) and redraw (120), so that the drawing shows the notification. In event tracking it
    ///   is ahead of the pointer's events, which arrive in floods.
    /// - `whenIdle`: "nothing else to do" includes GLib's idle (200) and low (300), and all sources that a program put
    ///   behind them.
    /// - `mark`: an iteration that reaches it belongs to drawing, or to lower priorities.
    /// - `control`: whether a client reads affects all later work.
    /// - `immediate`: reading would let more messages arrive before it.
    /// - `delivery`: urgent deliveries never wait for messages that have not been read yet. The rest has
    ///   `G_PRIORITY_DEFAULT`; GTK's numbers are behind it, but GTK is not in this loop.
    /// - `reading`: urgent messages are found behind a burst of ordinary ones. The core and the service limit how far
    ///   reading goes, so that the default mode continues.
    /// - `waitingCalls`: a client that calls rarely never waits behind clients that call too much; a timer serves some
    ///   of the waiting calls nevertheless. It is ahead of the default mode for the same reason as reading.
    /// - `queuedAsap`: it gets a fifth of the time beside reading, and the place of `waitingCalls` when there is
    ///   nothing to read. A flood of posts never starves it.
    /// - `queuedWhenIdle`: all sources of this loop are known, so it need not be behind `G_PRIORITY_LOW` (300).
    ///
    /// The first five belong to a program's loop, which also has the sources of others. A context is in one mode at a
    /// time, so only the numbers of one column are ever ready. The others belong to the service's loop, which has only
    /// its own sources. It has the modes of its clients side by side, and there the columns order them (M6).
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
