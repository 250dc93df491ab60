// SPDX-License-Identifier: Apache-2.0

/// The estimate of whether messages of a broker come from the queue that it kept for this session, by the time spent
/// reading. No input and output.
///
/// A message of that queue dates from the time when it was queued. A retained message in it says nothing about the
/// present value at the broker. Nor does it say that no message followed it: a full queue takes no more.
struct SessionQueue {
    /// The reading time after which the queue counts as read: the broker sends it before all other messages.
    static let readingTime = Duration.seconds(90)

    private enum State {
        case read
        case reading(until: SuspendingClock.Instant)
        case paused(left: Duration)
    }

    private var state = State.read

    /// Begins with a new connection.
    ///
    /// - Parameter sessionPresent: whether the broker has kept a session.
    mutating func begin(sessionPresent: Bool, isPaused: Bool, now: SuspendingClock.Instant) {
        state = sessionPresent ? .paused(left: Self.readingTime) : .read
        if !isPaused { resume(now: now) }
    }

    mutating func pause(now: SuspendingClock.Instant) {
        if case .reading(let end) = state { state = end > now ? .paused(left: end - now) : .read }
    }

    mutating func resume(now: SuspendingClock.Instant) {
        if case .paused(let left) = state { state = .reading(until: now + left) }
    }

    func mayComeStill(now: SuspendingClock.Instant) -> Bool {
        switch state {
        case .read: false
        case .reading(let end): now < end
        case .paused: true
        }
    }
}
