// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// A stream of posts on one connection, in order, each at its time, with a limited number of unanswered posts.
///
/// A refused post is reported with its label, and the others are posted all the same. If the service ends before it
/// answers, it is unknown whether the posts were made: they are reported, and not repeated.
final class PostStream: @unchecked Sendable {
    // Sendable: the command has one thread.

    /// A post, and its time.
    struct Item {
        let outgoing: OutgoingPost
        /// The name of the post in messages, such as "line 3".
        let label: String
        /// The delay after the first post; 0 for none.
        let delay: Duration
    }

    /// The maximum number of unanswered posts.
    private static let window = 256

    private let session: CommandSession
    private let report: (Int) -> Void
    private let progress: Progress?
    /// Requests more items, which are added by ``add(_:)`` or announced as complete by ``end()``, perhaps before it
    /// returns.
    private let wantMore: () -> Void
    private var items = Deque<Item>()
    private var unanswered = 0
    private var posted = 0
    private var began: ContinuousClock.Instant?
    private var timer: EventSource?
    private var isAsking = false
    private var hasEnded = false
    /// The exit status: ``ExitCode/usage`` after a refusal, ``ExitCode/unavailable`` after a missing answer.
    private var outcome = ExitCode.done
    /// Consecutive unanswered posts that are not reported yet.
    private var uncertain: (first: String, last: String, count: Int, reason: String)?

    /// - Parameters:
    ///   - total: the number of posts, if it is known.
    ///   - report: receives the number of clients that each post matched.
    init(
        session: CommandSession, total: Int? = nil, showsProgress: Bool, report: @escaping (Int) -> Void,
        wantMore: @escaping () -> Void
    ) {
        self.session = session
        self.report = report
        self.wantMore = wantMore
        progress = showsProgress ? Progress("posted", of: total) : nil
    }

    func start() {
        session.finishWhenInterrupted { [unowned self] in
            progress?.end()
            return .interrupted
        }
        // The first post waits for the service, so that the time to reach it does not shorten the first delay.
        session.submit(.barrier { [self] _ in pump() })
    }

    /// Whether no item should be added, because enough posts wait.
    var isFull: Bool { items.count + unanswered >= Self.window }

    func add(_ item: Item) {
        items.append(item)
        if !isAsking { pump() }
    }

    /// Notes that there are no more items.
    func end() {
        hasEnded = true
        if !isAsking { pump() }
    }

    /// Reports an item that can't be posted.
    func fail(_ reason: String, _ label: String) {
        if outcome == .done { outcome = .usage }
        progress?.clear()
        printError("carillon: \(label): \(reason)")
    }

    private func pump() {
        let now = ContinuousClock.now
        while unanswered < Self.window {
            if items.isEmpty, !hasEnded {
                isAsking = true
                wantMore()
                isAsking = false
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

    private func wait(for time: Duration) {
        guard timer == nil else { return }
        let milliseconds = time.components.seconds * 1000 + time.components.attoseconds / 1_000_000_000_000_000
        timer = .once(milliseconds: UInt32(clamping: milliseconds + 1), on: .default) { [unowned self] in
            timer = nil
            pump()
        }
    }

    private func answered(_ result: Result<Int, ServiceError>, _ label: String) {
        unanswered -= 1
        if case .failure(.disconnected(let reason)) = result {
            outcome = .unavailable
            let before = uncertain
            uncertain = (before?.first ?? label, label, (before?.count ?? 0) + 1, reason)
            if unanswered == 0 { tellUncertain() }
            return pump()
        }
        tellUncertain()
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
    private func tellUncertain() {
        guard let posts = uncertain else { return }
        uncertain = nil
        progress?.clear()
        let which = posts.count == 1 ? posts.first : "\(posts.first) to \(posts.last)"
        let what = posts.count == 1 ? "it may have been posted" : "the \(posts.count) may have been posted"
        printError("carillon: \(which): no answer: \(NotificationFormat.harmless(posts.reason)); \(what)")
    }
}

extension BusError {
    /// The message, with the error name that manuals and scripts use.
    fileprivate var words: String {
        let text = NotificationFormat.harmless(message)
        return text.hasSuffix(name.rawValue) ? text : "\(text) (\(name.rawValue))"
    }
}
