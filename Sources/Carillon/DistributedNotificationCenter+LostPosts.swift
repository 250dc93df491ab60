// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Dispatch
import Foundation

/// Posts that did not ask for their outcome, and failed or may be lost: counted, logged, and announced as events (E10).
extension DistributedNotificationCenter {
    /// Losses that no event has announced yet. One event announces all that were lost until it is delivered, and the next one
    /// comes a second later at the earliest: a program that posts in a loop without a service loses thousands.
    struct UnannouncedPosts {
        /// Each different one once, and no more than ``maxErrors``.
        fileprivate var errors: [DistributedNotificationError] = []
        fileprivate var uncertain = 0
        /// When the next event is due, while one is.
        fileprivate var due: SuspendingClock.Instant?
        /// No event before.
        fileprivate var earliest: SuspendingClock.Instant?

        private static let maxErrors = 16
        fileprivate static let pause = Duration.seconds(1)
        /// An event that was due so long ago was pushed out of its queue.
        fileprivate static let patience = Duration.seconds(10)

        fileprivate mutating func add(_ error: DistributedNotificationError) {
            if errors.count < Self.maxErrors, !errors.contains(error) { errors.append(error) }
        }

        fileprivate func isOverdue(at now: SuspendingClock.Instant) -> Bool {
            due.map { now - $0 >= Self.patience } ?? false
        }

        /// - Returns: the time to the event; nil where one is due anyway.
        fileprivate mutating func schedule(at now: SuspendingClock.Instant) -> Duration? {
            if let due, now - due < Self.patience { return nil }
            let wait = max(.zero, (earliest ?? now) - now)
            due = now + wait
            return wait
        }

        fileprivate mutating func take(at now: SuspendingClock.Instant) -> [Event] {
            defer { self = UnannouncedPosts(earliest: now + Self.pause) }
            return errors.map(Event.postFailed) + (uncertain > 0 ? [.postsMayBeLost(count: uncertain)] : [])
        }
    }

    /// Posts may be lost. Threads: any.
    func noteUncertainPosts(_ count: Int, because reason: String) {
        let total = state.withLock { state in
            state.hasLostPosts = true
            return Log.throttle(&state.statistics.uncertainPosts, times: UInt64(count))
        }
        if let total { Log.warning("posts may be lost (\(total) so far): \(reason)") }
        announce { $0.uncertain += count }
    }

    /// Posts were not made, as there is no service or it has refused them. Threads: any.
    func noteFailedPosts(_ count: Int, _ error: DistributedNotificationError) {
        countFailedPosts(count, error)
        announce { $0.add(error) }
    }

    /// A post was refused before it left the process: the mistake is the program's, which is told of each. Threads: any.
    func noteRefusedPost(_ error: DistributedNotificationError) {
        if case .tooManyUnsentPosts = error { return noteFailedPosts(1, error) }
        countFailedPosts(1, error)
        report(.postFailed(error))
    }

    private func countFailedPosts(_ count: Int, _ error: DistributedNotificationError) {
        let total = state.withLock { state in
            state.hasLostPosts = true
            return Log.throttle(&state.statistics.failedPosts, times: UInt64(count))
        }
        if let total { Log.warning("a post failed (\(total) so far): \(error)") }
    }

    private func announce(_ add: (inout UnannouncedPosts) -> Void) {
        let wait = state.withLock { state -> Duration? in
            guard !state.eventHandlers.isEmpty else { return nil }
            add(&state.unannouncedPosts)
            return state.unannouncedPosts.schedule(at: .now)
        }
        guard let wait else { return }
        guard wait > .zero else { return deliverLosses() }
        DispatchQueue.global().asyncAfter(deadline: .now() + wait / .seconds(1)) { [weak self] in self?.deliverLosses()
        }
    }

    private func deliverLosses() {
        let lost = target(for: nil).deliver(byteCount: 256) { [weak self] in
            guard let self else { return }
            for event in state.withLock({ $0.unannouncedPosts.take(at: .now) }) { tell(event) }
        }
        noteOverflow(lost)
        // It may be pushed out of a queue that is not emptied in time.
        DispatchQueue.global().asyncAfter(deadline: .now() + UnannouncedPosts.patience / .seconds(1)) { [weak self] in
            guard let self, state.withLock({ $0.unannouncedPosts.isOverdue(at: .now) }) else { return }
            deliverLosses()
        }
    }
}
