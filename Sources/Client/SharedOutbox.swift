// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop

/// The queue of requests that a program's threads fill and its session empties. Threads: any.
///
/// While the line is idle and lent out, a post leaves from the posting thread and does not wait for the session's
/// thread to wake up. The order is that of ``append(_:)`` either way.
public final class SharedOutbox: Sendable {
    /// The line over which posts may bypass the session.
    enum Line {
        case bus(DirectSender)
        case channel(ChannelSender)
    }

    private struct State {
        var outbox: Outbox<Request>
        var isClosed = false
        /// The lent line; nil while posts leave through the session.
        var line: Line?
        /// The number of posts that bypassed the session on the bus.
        var passedOnBus: UInt64 = 0
        /// Whether the session already ensures that bypassing posts are confirmed.
        var isWatched = false

        /// - Returns: whether the session must continue, because a part of the post is left or the post is the first
        ///   unconfirmed one; nil when the post may not bypass the session.
        mutating func pass(_ post: OutgoingPost) -> Bool? {
            switch line {
            case nil: return nil
            case .bus(let line)?:
                guard post.completion == nil, outbox.mayPass, line.send(post.message) else { return nil }
                outbox.passed()
                passedOnBus += 1
                defer { isWatched = true }
                return !isWatched
            case .channel(let line)?:
                guard outbox.mayBypassOnChannel else { return nil }
                let passing = line.pass(post)
                guard passing != .refused else { return nil }
                outbox.passedOnOwnWay()
                return passing == .partly
            }
        }
    }

    private let state: Locked<State>

    public init(limits: Outbox<Request>.Limits = .init()) {
        state = Locked(State(outbox: Outbox(limits: limits)))
    }

    /// Appends a request to the queue.
    ///
    /// - Returns: whether the session must be notified. Otherwise it waits for an answer, and then finds the request.
    /// - Throws: ``ServiceError/tooManyUnsentPosts(limit:)`` for a post that would exceed the limits.
    @discardableResult
    public func append(_ request: Request) throws(ServiceError) -> Bool {
        try state.withLock { state throws(ServiceError) in
            switch request {
            case .post(let post):
                guard state.outbox.hasRoom(byteCount: post.byteCount) else {
                    throw .tooManyUnsentPosts(limit: state.outbox.limits.count)
                }
                if let needsNotice = state.pass(post) { return needsNotice }
                return state.outbox.append(
                    request, .post(wantsAnswer: post.completion != nil), byteCount: post.byteCount)
            case .register: return state.outbox.append(request, .registration)
            case .barrier: return state.outbox.append(request, .barrier)
            case .unregister, .suspend, .details, .call: return state.outbox.append(request, .other)
            }
        }
    }

    /// A counter that changes whenever a request leaves or is confirmed.
    public var progress: UInt64 { state.withLock { $0.outbox.progress } }
    /// The number of posts that have not left the process, and the number of unconfirmed posts that have.
    public var unsentPosts: (waiting: Int, unconfirmed: Int) { state.withLock { $0.outbox.unsent } }

    /// Notes that no more requests will follow.
    public func close() { state.withLock { $0.isClosed = true } }
    public var isClosed: Bool { state.withLock { $0.isClosed } }
    public var isEmpty: Bool { state.withLock { $0.outbox.isEmpty } }
    func next(_ posting: Outbox<Request>.Posting) -> (requests: [Request], confirms: Outbox<Request>.Confirmation?)? {
        state.withLock { $0.outbox.next(posting) }
    }

    /// Whether posts have left after the last post that asks for an answer. If so, the session watches them until they
    /// are confirmed and is not notified of further ones.
    func watch() -> Bool {
        state.withLock { state in
            state.isWatched = state.outbox.isConfirmationDue
            return state.isWatched
        }
    }
    func requestConfirmation() -> Outbox<Request>.Confirmation? { state.withLock { $0.outbox.requestConfirmation() } }
    /// Lets posts leave over this line, until ``endDirectSending()``.
    func lend(_ line: Line) { state.withLock { $0.line = line } }

    /// Ends the loan: all requests leave through the session from now on.
    ///
    /// - Returns: the number of posts that bypassed the session on the bus since the last call.
    func endDirectSending() -> UInt64 {
        state.withLock { state in
            state.line = nil
            defer { state.passedOnBus = 0 }
            return state.passedOnBus
        }
    }

    /// The number of requests that have left, while posts accumulate; nil when none do.
    var departuresBeforePile: UInt64? {
        state.withLock { $0.outbox.isPilingUp ? $0.outbox.departures : nil }
    }
    func hurry() { state.withLock { $0.outbox.hurry() } }
    func confirmed(_ count: Int) { state.withLock { $0.outbox.confirmed(count) } }
    func confirmed(_ confirmation: Outbox<Request>.Confirmation) {
        state.withLock { $0.outbox.confirmed(confirmation) }
    }
    func failed(_ confirmation: Outbox<Request>.Confirmation) { state.withLock { $0.outbox.failed(confirmation) } }
    func refused(_ count: Int, isEnding: Bool) { state.withLock { $0.outbox.refused(count, isEnding: isEnding) } }
    func asks(_ count: Int) -> Outbox<Request>.Confirmation { state.withLock { $0.outbox.asks(count) } }
    func leaveSilently(_ count: Int, of confirmation: inout Outbox<Request>.Confirmation) {
        state.withLock { $0.outbox.leaveSilently(count, of: &confirmation) }
    }
    func reset(keeping count: Int = 0, isTaken: Bool = false) {
        state.withLock { $0.outbox.reset(keeping: count, isTaken: isTaken) }
    }
    var unresolved: Int { state.withLock { $0.outbox.unresolved } }
    func resolve() -> Int { state.withLock { $0.outbox.resolve() } }
    var isPostNext: Bool? { state.withLock { $0.outbox.isPostNext } }
    func nextPosts() -> [OutgoingPost] { state.withLock { $0.outbox.nextPosts() }.compactMap(\.post) }
    /// Puts posts that were removed but not sent back at the head of the queue.
    func putBack(_ posts: [OutgoingPost]) {
        state.withLock {
            $0.outbox.putBack(posts.map { (.post($0), $0.completion != nil, $0.byteCount) })
        }
    }
    /// The number of waiting barriers.
    var barriers: Int {
        state.withLock { $0.outbox.count { if case .barrier = $0 { true } else { false } } }
    }
    func removeAll() -> [Request] { state.withLock { $0.outbox.removeAll() } }
}
