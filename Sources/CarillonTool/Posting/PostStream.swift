// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Many posts on one connection, in their order, each when it is due, with a bounded number that wait for an answer.
///
/// A refused post is told with its label, and the others are posted all the same. Where the service ended before it
/// answered, nobody knows whether the posts were made: they are told, and not repeated.
final class PostStream: @unchecked Sendable {
    // Sendable: the command has one thread.

    /// A post, and when it is to be made.
    struct Item {
        let outgoing: OutgoingPost
        /// As messages name it, such as "line 3".
        let label: String
        /// After the first one; 0 for at once.
        let delay: Duration
    }

    /// Posts without an answer at most.
    private static let window = 256

    private let session: CommandSession
    private let report: (Int) -> Void
    private let progress: Progress?
    /// Has more items come, by ``add(_:)`` or ``end()``; may do so before it returns.
    private let wantMore: () -> Void
    private var items = Deque<Item>()
    private var unanswered = 0
    private var posted = 0
    private var began: ContinuousClock.Instant?
    private var timer: EventSource?
    private var isAsking = false
    private var hasEnded = false
    /// The exit status: ``ExitCode/usage`` after a refusal, ``ExitCode/unavailable`` after an answer that never came.
    private var outcome = ExitCode.done
    /// Consecutive posts without an answer that were not told yet.
    private var uncertain: (first: String, last: String, count: Int, reason: String)?

    /// - Parameters:
    ///   - total: how many there will be, where that is known.
    ///   - report: gets the number of clients that each matched.
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
        // The time that it takes to reach the service is none between the first post and the second.
        session.submit(.barrier { [self] _ in pump() })
    }

    /// Whether another item is to be kept back: enough wait already.
    var isFull: Bool { items.count + unanswered >= Self.window }

    func add(_ item: Item) {
        items.append(item)
        if !isAsking { pump() }
    }

    /// There are no more items.
    func end() {
        hasEnded = true
        if !isAsking { pump() }
    }

    /// Tells of an item that can't be posted.
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
    /// The message, and by which name manuals and scripts know the error.
    fileprivate var words: String {
        let text = NotificationFormat.harmless(message)
        return text.hasSuffix(name.rawValue) ? text : "\(text) (\(name.rawValue))"
    }
}
