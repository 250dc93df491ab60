// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop

/// The thread-safe queue of requests between a program's threads, which append, and its session, which sends. It is an
/// ``Outbox`` with a lock.
///
/// **Direct sending.** The session may lend a transport to the posting threads. A post then leaves from the posting
/// thread, and does not wait for the session's thread to wake up. This happens only while no earlier request waits, so
/// the order is that of ``append(_:)`` either way.
///
/// Threads: any.
public final class SharedOutbox: Sendable {
    /// The transport over which posting threads may send directly.
    enum DirectPath {
        case bus(DirectSender)
        case channel(ChannelSender)
    }

    private struct State {
        var outbox: Outbox<Request>
        var isClosed = false
        /// The lent transport; nil while posts leave through the session.
        var directPath: DirectPath?
        /// The number of posts that were sent directly on the bus since the transport was lent.
        var directPostsOnBus: UInt64 = 0
        /// Whether the session already has a timer that confirms directly sent posts.
        var isWatched = false

        /// Sends a post directly, if possible.
        ///
        /// - Returns: whether the session must be notified: a part of the post is unwritten, or the post needs a
        ///   confirmation timer and none runs. The result is nil when the post was not sent and has to be appended.
        mutating func pass(_ post: OutgoingPost) -> Bool? {
            switch directPath {
            case nil: return nil
            case .bus(let directPath)?:
                guard post.completion == nil, outbox.mayBypassOnBus, directPath.send(post.message) else { return nil }
                outbox.countBusBypass()
                directPostsOnBus += 1
                defer { isWatched = true }
                return !isWatched
            case .channel(let directPath)?:
                guard outbox.mayBypassOnChannel else { return nil }
                let passing = directPath.pass(post)
                guard passing != .refused else { return nil }
                outbox.countChannelBypass()
                return passing == .partly
            }
        }
    }

    private let state: Locked<State>

    public init(limits: Outbox<Request>.Limits = .init()) {
        state = Locked(State(outbox: Outbox(limits: limits)))
    }

    /// Appends a request to the queue, or sends a post directly.
    ///
    /// - Returns: whether the session must be notified. Otherwise the session finds the request after the answer that
    ///   it awaits.
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
    /// The number of posts that have not left the process, and the number of sent posts that are unconfirmed.
    public var unsentPosts: (waiting: Int, unconfirmed: Int) { state.withLock { $0.outbox.unsent } }

    /// Records that no more requests will follow, so that the session's thread can end.
    public func close() { state.withLock { $0.isClosed = true } }
    public var isClosed: Bool { state.withLock { $0.isClosed } }
    public var isEmpty: Bool { state.withLock { $0.outbox.isEmpty } }

    // Members without a comment call the member of ``Outbox`` with the same name, under the lock.

    func next(_ posting: Outbox<Request>.Posting) -> (requests: [Request], confirms: Outbox<Request>.Confirmation?)? {
        state.withLock { $0.outbox.next(posting) }
    }

    /// Whether the session needs a confirmation timer for sent posts. If so, the session starts it, and is not notified
    /// of further direct posts until the next call of this method.
    func watch() -> Bool {
        state.withLock { state in
            state.isWatched = state.outbox.isConfirmationDue
            return state.isWatched
        }
    }
    func requestConfirmation() -> Outbox<Request>.Confirmation? { state.withLock { $0.outbox.requestConfirmation() } }
    /// Lends a transport: posting threads may send over it until ``endDirectSending()``.
    func lend(_ directPath: DirectPath) { state.withLock { $0.directPath = directPath } }

    /// Ends the loan: all requests leave through the session from now on.
    ///
    /// - Returns: the number of posts that were sent directly on the bus since the last call.
    func endDirectSending() -> UInt64 {
        state.withLock { state in
            state.directPath = nil
            defer { state.directPostsOnBus = 0 }
            return state.directPostsOnBus
        }
    }

    /// The number of requests that have left so far, if posts accumulate for a batch; nil otherwise. The session
    /// compares two values to find out whether a batch makes progress.
    var departuresWhileAccumulating: UInt64? {
        state.withLock { $0.outbox.isAccumulating ? $0.outbox.departures : nil }
    }
    func flushBatch() { state.withLock { $0.outbox.flushBatch() } }
    func confirmed(_ count: Int) { state.withLock { $0.outbox.confirmed(count) } }
    func confirmed(_ confirmation: Outbox<Request>.Confirmation) {
        state.withLock { $0.outbox.confirmed(confirmation) }
    }
    func failed(_ confirmation: Outbox<Request>.Confirmation) { state.withLock { $0.outbox.failed(confirmation) } }
    func refused(_ count: Int, isEnding: Bool) { state.withLock { $0.outbox.refused(count, isEnding: isEnding) } }
    func asks(_ count: Int) -> Outbox<Request>.Confirmation { state.withLock { $0.outbox.asks(count) } }
    func makeSilent(_ count: Int, of confirmation: inout Outbox<Request>.Confirmation) {
        state.withLock { $0.outbox.makeSilent(count, of: &confirmation) }
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
