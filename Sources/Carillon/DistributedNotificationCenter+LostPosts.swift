// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Dispatch
import Foundation

/// Posts without a requested outcome that failed or may be lost: they are counted, logged and reported as events (E10).
extension DistributedNotificationCenter {
    /// The lost posts that no event has reported, and the schedule of the next event. One event covers all losses until
    /// its delivery, and the next event follows a second later at the earliest. A program that posts in a loop without
    /// a service would otherwise receive thousands of events.
    struct UnreportedLostPosts {
        /// The different errors, at most ``maxErrors``.
        fileprivate var errors: [DistributedNotificationError] = []
        /// The number of posts that may be lost.
        fileprivate var uncertain = 0
        /// The time at which the next event is due; nil if none is scheduled.
        fileprivate var due: SuspendingClock.Instant?
        /// The earliest time of the next event; nil for any time.
        fileprivate var earliest: SuspendingClock.Instant?

        private static let maxErrors = 16
        /// The minimum time between two events.
        fileprivate static let pause = Duration.seconds(1)
        /// The time after which a due event counts as dropped from a full delivery queue, and is delivered again.
        fileprivate static let redeliveryDelay = Duration.seconds(10)

        fileprivate mutating func add(_ error: DistributedNotificationError) {
            if errors.count < Self.maxErrors, !errors.contains(error) { errors.append(error) }
        }

        /// Whether the due event was probably dropped.
        fileprivate func isOverdue(at now: SuspendingClock.Instant) -> Bool {
            due.map { now - $0 >= Self.redeliveryDelay } ?? false
        }

        /// Schedules an event.
        ///
        /// - Returns: the time until the event; nil if one is scheduled and not overdue.
        fileprivate mutating func schedule(at now: SuspendingClock.Instant) -> Duration? {
            if let due, now - due < Self.redeliveryDelay { return nil }
            let wait = max(.zero, (earliest ?? now) - now)
            due = now + wait
            return wait
        }

        /// Returns the events about all unreported losses, and begins the pause after them.
        fileprivate mutating func take(at now: SuspendingClock.Instant) -> [Event] {
            defer { self = UnreportedLostPosts(earliest: now + Self.pause) }
            return errors.map(Event.postFailed) + (uncertain > 0 ? [.postsMayBeLost(count: uncertain)] : [])
        }
    }

    /// Counts and reports posts that may be lost. Threads: any.
    func noteUncertainPosts(_ count: Int, because reason: String) {
        let total = state.withLock { state in
            state.hasLostPosts = true
            return Log.throttle(&state.statistics.uncertainPosts, times: UInt64(count))
        }
        if let total { Log.warning("posts may be lost (\(total) so far): \(reason)") }
        scheduleReport { $0.uncertain += count }
    }

    /// Counts and reports posts that failed, because there is no service or it refused them. Threads: any.
    func noteFailedPosts(_ count: Int, _ error: DistributedNotificationError) {
        countFailedPosts(count, error)
        scheduleReport { $0.add(error) }
    }

    /// Counts and reports a post that was refused before it left the process. A post with an invalid argument has its
    /// own event, because the mistake is the program's. Threads: any.
    func reportRefusedPost(_ error: DistributedNotificationError) {
        // While too many posts wait, each further one is refused, so these refusals share an event.
        if case .tooManyUnsentPosts = error { return noteFailedPosts(1, error) }
        countFailedPosts(1, error)
        report(.postFailed(error))
    }

    /// Counts failed posts and logs them at a limited rate.
    private func countFailedPosts(_ count: Int, _ error: DistributedNotificationError) {
        let total = state.withLock { state in
            state.hasLostPosts = true
            return Log.throttle(&state.statistics.failedPosts, times: UInt64(count))
        }
        if let total { Log.warning("a post failed (\(total) so far): \(error)") }
    }

    /// Records losses for an event, and schedules the event. Without handlers, no event is necessary.
    private func scheduleReport(_ add: (inout UnreportedLostPosts) -> Void) {
        let wait = state.withLock { state -> Duration? in
            guard !state.eventHandlers.isEmpty else { return nil }
            add(&state.unreportedLostPosts)
            return state.unreportedLostPosts.schedule(at: .now)
        }
        guard let wait else { return }
        guard wait > .zero else { return deliverLosses() }
        DispatchQueue.global().asyncAfter(deadline: .now() + wait / .seconds(1)) { [weak self] in self?.deliverLosses()
        }
    }

    /// Delivers the event about the lost posts, with all losses at the moment of the delivery.
    private func deliverLosses() {
        let lost = target(for: nil).deliver(byteCount: 256) { [weak self] in
            guard let self else { return }
            for event in state.withLock({ $0.unreportedLostPosts.take(at: .now) }) { callHandlers(event) }
        }
        noteOverflow(lost)
        // A full delivery queue may drop the event. It is delivered again if that has not happened after ten seconds.
        DispatchQueue.global().asyncAfter(deadline: .now() + UnreportedLostPosts.redeliveryDelay / .seconds(1)) {
            [weak self] in
            guard let self, state.withLock({ $0.unreportedLostPosts.isOverdue(at: .now) }) else { return }
            deliverLosses()
        }
    }
}
