// SPDX-License-Identifier: Apache-2.0

/// Whether messages of a broker may be those that it kept for this session, by the time that the bridge has read. No input and
/// output.
///
/// A message of that queue is of the time when it was put there. A retained one says nothing of what the broker has now, nor
/// does it say that nothing came behind it: a full queue takes no more.
struct SessionQueue {
    /// After reading for so long the queue is read: the broker sends it ahead of all else.
    static let readingTime = Duration.seconds(90)

    private enum State {
        case read
        case reading(until: SuspendingClock.Instant)
        case paused(left: Duration)
    }

    private var state = State.read

    /// There is a new connection.
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
