// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// The classes of work on a loop, for each of which the table of priorities has a row (M2, M6). A source names its
/// class instead of a number.
public enum LoopWork: Sendable, CaseIterable {
    // Work in a program

    /// A notification queue's posts of the style *as soon as possible* (Q2).
    case asap
    /// A notification from another process or thread.
    case ordinary
    /// A notification queue's posts of the style *when idle* (Q2).
    case whenIdle
    /// No work: a source just ahead of drawing, which detects that all more urgent sources have run (M3).
    case mark
    /// No work: a source behind all others, which is ready while a source of notifications has used up its time and
    /// waits for the others (*rests*). It keeps the loop from being idle (M3).
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
    /// Calls in the call queue: more calls arrived than the service could serve at once (E4).
    case waitingCalls
    /// Posts of the style *as soon as possible* that clients queued (Q7).
    case queuedAsap
    /// Posts of the style *when idle* that clients queued (Q7).
    case queuedWhenIdle
}

extension EventSource.Priority {
    /// Returns the priority of a class of work in a mode. This table is the only place that sets priorities (M2, M6).
    /// As in GLib, a smaller number is dispatched first. *max* is the largest number, `Int32.max`.
    ///
    /// | work | event tracking | modal panel | default, custom | reason |
    /// |---|---|---|---|---|
    /// | `asap` | −1002 | −1001 | −1000 | ahead of all sources of the next iteration |
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
    /// - `asap`: these posts belong to the end of the current iteration. They go ahead of all sources of the next one,
    ///   so the number is smaller than every number in use. GLib's own begin at `G_PRIORITY_HIGH` (−100).
    /// - `ordinary`: GDK's events and most timers have `G_PRIORITY_DEFAULT` (0), and neither delays the other. It is
    ///   before GTK's resize (110) and redraw (120), so that the drawing shows the notification. In event tracking it
    ///   is ahead of the pointer's events, which arrive in floods.
    /// - `whenIdle`: a loop is idle only if GLib's idle (200) and low (300) sources, and all sources that a program put
    ///   behind them, are not ready.
    /// - `mark`: GLib reaches it only in an iteration for drawing or for lower priorities.
    /// - `control`: the answer to a probe decides whether a client may receive more, which affects all later work.
    /// - `immediate`: if reading went first, more messages would arrive and delay the delivery.
    /// - `delivery`: urgent deliveries never wait for messages that have not been read yet. The others have
    ///   `G_PRIORITY_DEFAULT`.
    /// - `reading`: reading goes ahead of ordinary deliveries, because an urgent message may stand behind a burst of
    ///   ordinary ones. The core and the service limit the reading, so that deliveries in the default mode continue.
    /// - `waitingCalls`: it is behind reading, so that a client that calls rarely never waits behind clients that call
    ///   too much. A timer serves some of the waiting calls even if reading never ends. It is ahead of the default mode
    ///   for the same reason as reading.
    /// - `queuedAsap`: it gets a fifth of the time beside reading, so that a flood of posts never starves it. In the
    ///   pauses between its portions it has the priority of `waitingCalls`.
    /// - `queuedWhenIdle`: all sources of this loop are known, so it need not be behind `G_PRIORITY_LOW` (300).
    ///
    /// The first five rows are for a program's loop, which also has sources of other libraries. A context is in one
    /// mode at a time, so only the numbers of one column are in use at once. The other rows are for the service's loop,
    /// which has only its own sources. The service serves observers of all modes at once, so there the columns order
    /// them (M6).
    public static func of(_ work: LoopWork, in mode: RunLoopMode = .default) -> EventSource.Priority {
        // 0 to 2: the urgency of the mode.
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
