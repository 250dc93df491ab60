// SPDX-License-Identifier: Apache-2.0

/// The estimate whether the broker still sends messages that it had queued for this session while the bridge was away.
/// ``BrokerLink`` uses it; it does no input and output. The protocol does not mark such messages, so the estimate is
/// based on the time spent reading since the connection.
///
/// A queued message may be old: a retained message among them does not show the present value at the broker. Nor is the
/// queue complete: a full queue takes no further messages, so a removal behind it may be missing.
struct SessionQueueEstimate {
    /// The reading time after which all queued messages count as read, an estimate. The broker sends them before all
    /// others.
    static let readingTime = Duration.seconds(90)

    /// The state of the queue at the broker.
    private enum State {
        /// No queued message can arrive any more.
        case read
        /// Queued messages may arrive until a time.
        case reading(until: SuspendingClock.Instant)
        /// Reading is paused; the remaining reading time is `left`.
        case paused(left: Duration)
    }

    private var state = State.read

    /// Begins with a new connection.
    ///
    /// - Parameters:
    ///   - sessionPresent: whether the broker has kept the session.
    ///   - isPaused: whether reading is paused.
    mutating func begin(sessionPresent: Bool, isPaused: Bool, now: SuspendingClock.Instant) {
        state = sessionPresent ? .paused(left: Self.readingTime) : .read
        if !isPaused { resume(now: now) }
    }

    /// Notes that reading is paused.
    mutating func pause(now: SuspendingClock.Instant) {
        if case .reading(let end) = state { state = end > now ? .paused(left: end - now) : .read }
    }

    /// Notes that reading continues.
    mutating func resume(now: SuspendingClock.Instant) {
        if case .paused(let left) = state { state = .reading(until: now + left) }
    }

    /// Whether queued messages may still arrive.
    func mayStillDeliver(now: SuspendingClock.Instant) -> Bool {
        switch state {
        case .read: false
        case .reading(let end): now < end
        case .paused: true
        }
    }
}
