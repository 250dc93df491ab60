import MainLoop

/// What a program's threads fill and its session empties. Threads: any.
public final class SharedOutbox: Sendable {
    private struct State {
        var outbox: Outbox<Request>
        var isClosed = false
    }

    private let state: Locked<State>

    public init(limits: Outbox<Request>.Limits = .init()) {
        state = Locked(State(outbox: Outbox(limits: limits)))
    }

    /// Puts a request behind all others.
    ///
    /// - Returns: whether the session has to be told. Otherwise it waits for an answer, and finds the request then.
    /// - Throws: ``ServiceError/tooManyUnsentPosts(limit:)`` for a post that would go beyond the bound.
    @discardableResult
    public func append(_ request: Request) throws(ServiceError) -> Bool {
        try state.withLock { state throws(ServiceError) in
            switch request {
            case .post(let post):
                guard state.outbox.hasRoom(byteCount: post.byteCount) else {
                    throw .tooManyUnsentPosts(limit: state.outbox.limits.count)
                }
                return state.outbox.append(
                    request, .post(wantsAnswer: post.completion != nil), byteCount: post.byteCount)
            case .register: return state.outbox.append(request, .registration)
            case .unregister, .suspend, .call, .barrier: return state.outbox.append(request, .other)
            }
        }
    }

    /// Nothing more will come.
    public func close() { state.withLock { $0.isClosed = true } }
    public var isClosed: Bool { state.withLock { $0.isClosed } }
    public var isEmpty: Bool { state.withLock { $0.outbox.isEmpty } }
    func next(_ posting: Outbox<Request>.Posting) -> (requests: [Request], confirms: Int?)? {
        state.withLock { $0.outbox.next(posting) }
    }
    /// How many have left when posts pile up; nil when none do.
    var departuresBeforePile: UInt64? {
        state.withLock { $0.outbox.isPilingUp ? $0.outbox.departures : nil }
    }
    func hurry() { state.withLock { $0.outbox.hurry() } }
    func confirmed(_ count: Int) { state.withLock { $0.outbox.confirmed(count) } }
    func reset(keeping count: Int = 0) { state.withLock { $0.outbox.reset(keeping: count) } }
    var isPostNext: Bool? { state.withLock { $0.outbox.isPostNext } }
    func nextPosts() -> [OutgoingPost] { state.withLock { $0.outbox.nextPosts() }.compactMap(\.post) }
    /// Puts posts that were taken out, and were not sent, before all others.
    func putBack(_ posts: [OutgoingPost]) {
        state.withLock {
            $0.outbox.putBack(posts.map { (.post($0), $0.completion != nil, $0.byteCount) })
        }
    }
    /// How many barriers wait.
    var barriers: Int {
        state.withLock { $0.outbox.count { if case .barrier = $0 { true } else { false } } }
    }
    func removeAll() -> [Request] { state.withLock { $0.outbox.removeAll() } }
}
