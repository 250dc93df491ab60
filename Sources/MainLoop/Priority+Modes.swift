import CGLib

/// What a source hands out, as far as its place among other sources depends on it (M2).
public enum DeliveryKind: Sendable, CaseIterable {
    /// A notification queue's posts of the style *as soon as possible* (Q2).
    case asap
    /// What changes who gets what: suspension, a client that is gone (M6).
    case control
    /// A distributed notification that was posted to be delivered immediately.
    case immediate
    /// A notification that came from another process or thread.
    case ordinary
    /// A notification queue's posts of the style *when idle* (Q2).
    case whenIdle
}

extension EventSource.Priority {
    /// The one table of priorities (M2): the place of a kind of delivery in a mode. A smaller number goes first.
    ///
    /// | | event tracking | modal panel | default, custom | why there |
    /// |---|---|---|---|---|
    /// | as soon as possible | −1002 | −1001 | −1000 | "At the end of the current iteration" is before all that the next one finds ready, so ahead of every number in use; GLib's own begin at −100 |
    /// | control | −60 | −60 | −60 | Behind `G_PRIORITY_HIGH` (−100), where Unix signals are, and ahead of what it decides about |
    /// | immediate | −50 | −50 | −50 | Overtakes what is queued normally, in any mode |
    /// | ordinary | −20 | −10 | 0 | `G_PRIORITY_DEFAULT` (0) is where GDK's events and most timers are: neither holds up the other. Before GTK's resize (110) and redraw (120), so that what is drawn shows what arrived. In event tracking ahead of the pointer's events, which come in floods |
    /// | when idle | max − 2 | max − 1 | max | "Nothing else to do" includes GLib's idle (200) and low (300) and whatever a program put behind them |
    ///
    /// A context is in one mode at a time, so of one context's sources only those of one column are ever ready. The
    /// service has clients' modes side by side, and there the columns order them (M6).
    public static func of(_ kind: DeliveryKind, in mode: RunLoopMode) -> EventSource.Priority {
        let urgency: Int32 =
            switch mode {
            case .eventTracking: 2
            case .modalPanel: 1
            default: 0
            }
        return switch kind {
        case .asap: EventSource.Priority(rawValue: -1000 - urgency)
        case .control: EventSource.Priority(rawValue: -60)
        case .immediate: EventSource.Priority(rawValue: -50)
        case .ordinary: EventSource.Priority(rawValue: G_PRIORITY_DEFAULT - 10 * urgency)
        case .whenIdle: EventSource.Priority(rawValue: Int32.max - urgency)
        }
    }
}
