// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// A first-in, first-out queue of a program's requests that have not been sent. It decides when requests leave, alone
/// or in batches, and limits the posts in flight with a window.
///
/// **Window.** A program that never waits for an answer would accumulate its posts in the bus, whose memory all
/// programs share. Therefore every 64th post (``confirmEvery``) asks for an answer, and no more than ``window`` posts
/// are unconfirmed. An answer confirms all earlier posts, because the service answers in order. Further posts wait
/// here, within ``Limits`` (E1).
///
/// **Batches (F1).** With ``few`` or more posts in flight, further posts accumulate until an answer arrives or the
/// batch is full. They then leave together. Any other request, and ``flushBatch()``, make the accumulated posts leave
/// at once.
///
/// **Silent posts** ask for no answer of their own (``SilentPosts``).
///
/// ``SharedOutbox`` adds the lock; ``ServiceSession`` takes requests with ``next(_:)`` and reports answers with
/// ``confirmed(_:)``. This type makes decisions and does no input or output. Not thread-safe by itself.
public struct Outbox<Request> {
    /// The maximum number of posts in flight on the bus: enough to keep the connection busy until an answer arrives,
    /// with little memory.
    static var window: Int { 256 }
    /// The number of posts after which one asks for an answer.
    static var confirmEvery: Int { 64 }
    /// The limits of a batch in posts and bytes.
    static var maxTogether: Int { 64 }
    static var maxBytesTogether: Int { 64 << 10 }
    /// The number of posts in flight below which the connection counts as idle, so that no post waits for a batch.
    static var few: Int { 8 }

    /// The maximum number of posts in flight on a channel. It is larger than ``window``, because a channel does not use
    /// the memory of the bus.
    static var channelWindow: Int { 1024 }
    /// The limit of a batch on a channel, in posts.
    static var maxChannelBatch: Int { 256 }

    /// The limits of waiting posts. A post beyond them is refused.
    public struct Limits: Sendable {
        /// The maximum number of waiting posts: as many as the service would queue for one client.
        public var count = 131_072
        /// The maximum size of waiting posts, in bytes.
        public var byteCount = 64 << 20

        public init(count: Int = 131_072, byteCount: Int = 64 << 20) {
            self.count = count
            self.byteCount = byteCount
        }
    }

    let limits: Limits
    /// A waiting request.
    private struct Entry {
        let request: Request
        let kind: Kind
        let byteCount: Int
    }

    /// The kind of a request, which decides how it leaves: whether it counts as a post in flight, and whether it is
    /// answered.
    enum Kind {
        case post(wantsAnswer: Bool)
        /// A registration: answered, and counted in the window like a post. The window is necessary, because a
        /// registration that the program removes before its answer arrives is removed at the service only after that
        /// answer. Without a window, such registrations could use up the service's limits (E1).
        case registration
        /// A barrier: its answer confirms all earlier requests.
        case barrier
        /// Any other request. It is not counted in the window.
        case other

        var isPost: Bool {
            if case .post = self { true } else { false }
        }

        /// Whether the requester wants an answer.
        var isAnswered: Bool {
            switch self {
            case .post(let wantsAnswer): wantsAnswer
            case .registration, .barrier: true
            case .other: false
            }
        }

        /// Whether the request is a post whose answer nobody awaits, so that it may wait for a batch.
        var mayBatch: Bool { isPost && !isAnswered }
    }

    /// The reason why ``next(_:)`` returned nothing although requests wait. An answer ends it.
    private enum Hold {
        /// The window is full.
        case window
        /// Posts accumulate.
        case batch
    }

    private var waiting = Deque<Entry>()
    /// The number of waiting posts.
    private var waitingPosts = 0
    /// The number of waiting requests that may not wait for a batch; while there are any, posts do not accumulate.
    private var waitingUrgently = 0
    /// The number of requests at the head of the queue that leave without waiting for a batch, after ``flushBatch()``.
    private var urgentHead = 0
    /// The reason why requests wait; nil if they may leave.
    private var hold: Hold?
    /// The number of requests that have left since the start.
    private(set) var departures: UInt64 = 0
    /// The number of posts that have been confirmed since the start.
    private var confirmations: UInt64 = 0
    /// A counter that changes whenever a request leaves or is confirmed.
    var progress: UInt64 { departures &+ confirmations }
    /// The number of posts that have not left, and the number of sent posts that are not known to have been taken.
    var unsent: (waiting: Int, unconfirmed: Int) {
        // Refused posts are in the window until the next answer. Unanswered and unresolved posts have left the window.
        (waitingPosts, max(0, unconfirmed - silent.refused) + silent.unanswered + silent.unresolved)
    }
    /// The size of the waiting requests, in bytes.
    private var byteCount = 0
    /// The number of posts and registrations in the window: sent and not confirmed.
    private var unconfirmed = 0
    /// The number of these that left after the last request that asks for an answer.
    private var sinceConfirmation = 0
    /// The posts in flight on the bus that asked for no answer.
    private var silent = SilentPosts()

    /// The requests that an answer confirms. The sender keeps it until the answer arrives.
    struct Confirmation: Equatable {
        /// The number of requests that are no longer in flight.
        var count: Int
        /// The number of these requests that asked for no answer.
        var silent: Int

        /// The confirmation of an answer that confirms no request.
        static var nothing: Self { Self(count: 0, silent: 0) }
    }

    init(limits: Limits = Limits()) {
        self.limits = limits
    }

    var isEmpty: Bool { waiting.isEmpty }

    /// Whether the queue may take one more post of this size.
    func hasRoom(byteCount: Int) -> Bool {
        waitingPosts < limits.count && self.byteCount + byteCount <= limits.byteCount
    }

    /// Appends a request.
    ///
    /// - Returns: whether the request may leave, so that the caller must call ``next(_:)``. Otherwise the session calls
    ///   it after the next answer.
    @discardableResult
    mutating func append(_ request: Request, _ kind: Kind, byteCount: Int = 0) -> Bool {
        waiting.append(Entry(request: request, kind: kind, byteCount: byteCount))
        count(kind, byteCount, by: 1)
        switch hold {
        case nil: return true
        case .window: return false
        case .batch: return !accumulates
        }
    }

    /// Adds a waiting request to the counts (`sign` 1), or removes it from them (`sign` -1).
    private mutating func count(_ kind: Kind, _ byteCount: Int, by sign: Int) {
        if kind.isPost { waitingPosts += sign }
        if !kind.mayBatch { waitingUrgently += sign }
        self.byteCount += sign * byteCount
    }

    /// Whether the waiting posts accumulate until an answer to a post in flight arrives.
    private var accumulates: Bool {
        unconfirmed >= Self.few && urgentHead == 0 && waitingUrgently == 0 && waitingPosts < Self.maxTogether
            && byteCount < Self.maxBytesTogether
    }

    /// Whether a post without a completion may bypass the queue on the bus. The queue would send it at once, alone and
    /// without asking for an answer.
    var mayBypassOnBus: Bool {
        waiting.isEmpty && unconfirmed + 1 < Self.few && sinceConfirmation + 1 < Self.confirmEvery
    }

    /// Counts a post that bypassed the queue on the bus.
    mutating func countBusBypass() {
        unconfirmed += 1
        sinceConfirmation += 1
        silent.add(1)
    }

    /// Whether a post may bypass the queue over a channel. Each such post requests an outcome. With more posts in
    /// flight, the session sends posts in batches, of which only some request one.
    var mayBypassOnChannel: Bool { waiting.isEmpty && unconfirmed + 1 < Self.few }

    /// Counts a post that bypassed the queue over a channel.
    mutating func countChannelBypass() {
        unconfirmed += 1
    }

    /// Whether posts accumulate, as the last call of ``next(_:)`` found.
    var isAccumulating: Bool { hold == .batch }

    /// Lets the requests that wait now leave without waiting for a batch.
    mutating func flushBatch() { urgentHead = waiting.count }

    /// The permitted form of posts, which depends on the support of the service and the state of the connection.
    enum Posting {
        /// Each post leaves in a call of its own.
        case oneByOne
        /// Accumulated posts leave in one call.
        case together
        /// Posts have to wait, and so do the requests behind them, to keep the order.
        case not
    }

    /// Removes the next request or batch to send.
    ///
    /// - Returns: one request, or the posts of a batch. `confirms` is nil if no answer is required. Otherwise the
    ///   caller passes it to ``confirmed(_:)`` with the answer. The result is nil when nothing waits, or when posts in
    ///   flight have to be confirmed first.
    mutating func next(_ posting: Posting = .oneByOne) -> (requests: [Request], confirms: Confirmation?)? {
        hold = nil
        guard let first = waiting.first else { return nil }
        switch first.kind {
        case .other: return ([takeFirst()], nil)
        case .barrier: return ([takeFirst()], confirmation(asking: 0))
        case .post, .registration: break
        }
        if first.kind.isPost, posting == .not { return nil }
        guard unconfirmed < Self.window else {
            hold = .window
            return nil
        }
        let areTogether = first.kind.isPost && posting == .together
        guard !areTogether || !accumulates else {
            hold = .batch
            return nil
        }
        // Take one request, or all posts at the head of the queue that fit into a batch and the window.
        let maxRequests = areTogether ? Self.maxTogether : 1
        var requests: [Request] = []
        var (bytes, wantsAnswer) = (0, false)
        while let next = waiting.first, requests.isEmpty || next.kind.isPost, requests.count < maxRequests,
            unconfirmed < Self.window, requests.isEmpty || bytes + next.byteCount <= Self.maxBytesTogether
        {
            bytes += next.byteCount
            unconfirmed += 1
            sinceConfirmation += 1
            if next.kind.isAnswered || sinceConfirmation == Self.confirmEvery { wantsAnswer = true }
            requests.append(takeFirst())
        }
        // From now on posts accumulate until an answer arrives, so this batch asks for one.
        if areTogether, unconfirmed >= Self.few { wantsAnswer = true }
        guard wantsAnswer else {
            silent.add(requests.count)
            return (requests, nil)
        }
        return (requests, confirmation(asking: requests.count))
    }

    /// Whether sent posts will not be confirmed by an answer in flight: they left after the last post that asks for an
    /// answer, or that answer has failed.
    var isConfirmationDue: Bool { sinceConfirmation > 0 || silent.unanswered > 0 }

    /// Returns the confirmation of a Ping that is sent now, behind posts that asked for no answer.
    ///
    /// - Returns: nil when there are no such posts, or when an answer to an earlier request is in flight.
    mutating func requestConfirmation() -> Confirmation? {
        guard isConfirmationDue, unconfirmed == sinceConfirmation else { return nil }
        return confirmation(asking: 0)
    }

    /// Returns the confirmation of an answer that is asked for now: it confirms all requests since the previous one.
    ///
    /// - Parameter count: the number of these requests that are not silent, because the answer is their own.
    private mutating func confirmation(asking count: Int) -> Confirmation {
        defer { sinceConfirmation = 0 }
        return Confirmation(count: sinceConfirmation, silent: sinceConfirmation - count)
    }

    /// Whether the next request is a post; nil when nothing waits.
    var isPostNext: Bool? { waiting.first?.kind.isPost }

    /// Removes the posts at the head of the queue that leave together over a channel. The result is empty when posts in
    /// flight have to be confirmed first.
    mutating func nextPosts() -> [Request] {
        hold = nil
        var requests: [Request] = []
        var bytes = 0
        while let next = waiting.first, next.kind.isPost, requests.count < Self.maxChannelBatch,
            unconfirmed < Self.channelWindow, requests.isEmpty || bytes + next.byteCount <= Self.maxBytesTogether
        {
            bytes += next.byteCount
            unconfirmed += 1
            requests.append(takeFirst())
        }
        return requests
    }

    /// Puts removed posts, which were not sent, back at the head of the queue in their order.
    mutating func putBack(_ posts: [(request: Request, wantsAnswer: Bool, byteCount: Int)]) {
        for (request, wantsAnswer, byteCount) in posts.reversed() {
            let kind = Kind.post(wantsAnswer: wantsAnswer)
            waiting.prepend(Entry(request: request, kind: kind, byteCount: byteCount))
            count(kind, byteCount, by: 1)
        }
        if urgentHead > 0 { urgentHead += posts.count }
        hold = nil
    }

    /// The number of waiting requests that fulfil the condition.
    func count(where condition: (Request) -> Bool) -> Int {
        waiting.reduce(0) { $0 + (condition($1.request) ? 1 : 0) }
    }

    /// Applies an answer that arrived on the bus: the requests of its confirmation have been taken.
    mutating func confirmed(_ confirmation: Confirmation) {
        silent.confirm(confirmation.silent)
        confirmed(confirmation.count)
    }

    /// Counts silent posts that the service has announced as refused.
    ///
    /// - Parameter isEnding: whether the announcing service has given up its name.
    mutating func refused(_ count: Int, isEnding: Bool = false) {
        if isEnding { silent.refuseUnresolved(count) } else { silent.refuse(count) }
    }

    /// Applies the failure of an answer. Its requests leave the window, but it is unknown which posts were taken.
    mutating func failed(_ confirmation: Confirmation) {
        silent.fail(confirmation.silent)
        unconfirmed = max(0, unconfirmed - confirmation.count)
        hold = nil
    }

    /// Changes posts that ``next(_:)`` returned as silent: they ask for an answer after all.
    ///
    /// - Returns: the confirmation of that answer, which also covers earlier requests.
    mutating func asks(_ count: Int) -> Confirmation {
        silent.withdraw(count)
        return confirmation(asking: count)
    }

    /// Changes posts of a confirmation: they ask for no answer of their own after all.
    mutating func makeSilent(_ count: Int, of confirmation: inout Confirmation) {
        silent.add(count)
        confirmation.silent += count
    }

    /// Removes confirmed posts from the window. Also used for posts over a channel, whose outcomes arrive one by one.
    mutating func confirmed(_ count: Int) {
        unconfirmed = max(0, unconfirmed - count)
        confirmations &+= UInt64(count)
        hold = nil
    }

    /// Resets the window after a change of the service or the connection, because no answer will confirm the requests
    /// in flight.
    ///
    /// - Parameters:
    ///   - count: the number of posts that stay in flight, over a channel.
    ///   - isTaken: whether the service has answered after all requests in flight. Otherwise the silent posts become
    ///     unresolved.
    mutating func reset(keeping count: Int = 0, isTaken: Bool = false) {
        if isTaken { silent.confirmAll() } else { silent.serviceEnded() }
        (unconfirmed, sinceConfirmation, hold) = (count, 0, nil)
    }

    /// The number of unresolved posts: it is unknown whether an ended service has taken them.
    var unresolved: Int { silent.unresolved }

    /// Forgets the unresolved posts, whose outcome is known now or will never be known.
    ///
    /// - Returns: the number of these posts.
    mutating func resolve() -> Int { silent.resolve() }

    /// Removes all waiting requests, in order.
    mutating func removeAll() -> [Request] {
        defer {
            waiting.removeAll()
            (waitingPosts, waitingUrgently, urgentHead, byteCount) = (0, 0, 0, 0)
            hold = nil
        }
        return waiting.map(\.request)
    }

    private mutating func takeFirst() -> Request {
        let entry = waiting.popFirst()!
        count(entry.kind, entry.byteCount, by: -1)
        urgentHead = max(0, urgentHead - 1)
        departures += 1
        return entry.request
    }
}
