// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// A sender of many posts on one connection, in order and each at its time, with a window of at most 256 unanswered
/// posts. It serves `carillon post --lines`, `carillon post --repeat` and `carillon replay`.
///
/// A refused post is reported with its label, and the others are posted nevertheless. Posts that a service has not
/// answered at its end may have been made or not: they are reported as uncertain, and not repeated.
final class PostStream: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.

    /// A post in the queue, with its time.
    struct Item {
        let outgoing: OutgoingPost
        /// The name of the post in error messages, such as "line 3".
        let label: String
        /// The delay after the first post. Without a delay it is 0.
        let delay: Duration
    }

    /// The maximum number of unanswered posts.
    private static let window = 256

    private let session: CommandSession
    /// Receives the number of clients that each post matched.
    private let report: (Int) -> Void
    private let progress: Progress?
    /// Requests more items from the owner, when the queue is empty. The owner then calls ``add(_:)`` or ``end()``, at
    /// once or later.
    private let requestItems: () -> Void
    private var items = Deque<Item>()
    /// The number of posts that were sent and have no answer.
    private var unanswered = 0
    /// The number of accepted posts.
    private var posted = 0
    /// The time of the first post.
    private var began: ContinuousClock.Instant?
    /// The timer for the delay of the next item.
    private var timer: EventSource?
    /// Whether ``requestItems`` is running. Items that it adds are sent after it returns.
    private var isRequestingItems = false
    /// Whether no more items will be added.
    private var hasEnded = false
    /// The exit status: ``ExitCode/usage`` after a refusal, ``ExitCode/unavailable`` after a missing answer.
    private var outcome = ExitCode.done
    /// Consecutive uncertain posts, which are reported together: the first and the last label, the number, and the
    /// reason.
    private var uncertain: (first: String, last: String, count: Int, reason: String)?

    /// - Parameters:
    ///   - total: the number of posts, for the progress; nil if it is unknown.
    ///   - report: receives the number of clients that each post matched.
    ///   - requestItems: called to request more items when the queue is empty.
    init(
        session: CommandSession, total: Int? = nil, showsProgress: Bool, report: @escaping (Int) -> Void,
        requestItems: @escaping () -> Void
    ) {
        self.session = session
        self.report = report
        self.requestItems = requestItems
        progress = showsProgress ? Progress("posted", of: total) : nil
    }

    func start() {
        session.finishWhenInterrupted { [unowned self] in
            progress?.end()
            return .interrupted
        }
        // A barrier completes when the service has taken all earlier requests, here none. The first post waits for it,
        // so that the time to reach the service does not shorten the first delay.
        session.submit(.barrier { [self] _ in pump() })
    }

    /// Whether as many posts as fit in the window are queued or unanswered, so that the owner should add no more.
    var isFull: Bool { items.count + unanswered >= Self.window }

    /// Adds an item behind the others.
    func add(_ item: Item) {
        items.append(item)
        if !isRequestingItems { pump() }
    }

    /// Declares that no more items follow. The run ends after the last answer.
    func end() {
        hasEnded = true
        if !isRequestingItems { pump() }
    }

    /// Reports an item that can't be posted.
    func fail(_ reason: String, _ label: String) {
        if outcome == .done { outcome = .usage }
        progress?.clear()
        printError("carillon: \(label): \(reason)")
    }

    /// Sends the items that are due, up to the window. It ends the run when all are answered and no more follow.
    private func pump() {
        let now = ContinuousClock.now
        while unanswered < Self.window {
            if items.isEmpty, !hasEnded {
                isRequestingItems = true
                requestItems()
                isRequestingItems = false
            }
            guard let next = items.first else { break }
            let start = began ?? now
            began = start
            let left = now.duration(to: start.advanced(by: next.delay))
            guard left <= .zero else {
                wait(for: left)
                break
            }
            _ = items.popFirst()
            unanswered += 1
            session.submit(.post(next.outgoing.completed { [self] in answered($0, next.label) }))
        }
        if hasEnded, items.isEmpty, unanswered == 0 {
            progress?.end()
            session.finish(outcome)
        }
    }

    /// Calls ``pump()`` after a time, which is rounded up to whole milliseconds, so that the item is due by then.
    private func wait(for time: Duration) {
        guard timer == nil else { return }
        let milliseconds = time.components.seconds * 1000 + time.components.attoseconds / 1_000_000_000_000_000
        timer = .once(milliseconds: UInt32(clamping: milliseconds + 1), on: .default) { [unowned self] in
            timer = nil
            pump()
        }
    }

    /// Handles the answer to a post: the number of matched clients, or an error.
    private func answered(_ result: Result<Int, ServiceError>, _ label: String) {
        unanswered -= 1
        if case .failure(.disconnected(let reason)) = result {
            outcome = .unavailable
            let before = uncertain
            uncertain = (before?.first ?? label, label, (before?.count ?? 0) + 1, reason)
            if unanswered == 0 { reportUncertain() }
            return pump()
        }
        reportUncertain()
        switch result {
        case .success(let receivers):
            posted += 1
            progress?.show(posted)
            report(receivers)
        case .failure(.refused(let error)) where error.isRefusal: fail(error.words, label)
        case .failure(let error):
            progress?.end()
            return session.fail(error)
        }
        pump()
    }
}

extension PostStream {
    /// Reports the uncertain posts, if there are any.
    private func reportUncertain() {
        guard let posts = uncertain else { return }
        uncertain = nil
        progress?.clear()
        let which = posts.count == 1 ? posts.first : "\(posts.first) to \(posts.last)"
        let what = posts.count == 1 ? "it may have been posted" : "the \(posts.count) may have been posted"
        printError("carillon: \(which): no answer: \(NotificationFormat.harmless(posts.reason)); \(what)")
    }
}

extension BusError {
    /// The message for people, followed by the name of the error, by which manuals and scripts identify it. Some
    /// messages end with the name already.
    fileprivate var words: String {
        let text = NotificationFormat.harmless(message)
        return text.hasSuffix(name.rawValue) ? text : "\(text) (\(name.rawValue))"
    }
}
