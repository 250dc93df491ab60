// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The queue of requests that the service has not received yet. It keeps their order and limits the number of posts in
/// flight.
///
/// A program that never waits for an answer would accumulate its posts in the bus, whose memory all programs share.
/// Therefore every ``confirmEvery``th post asks for an answer, and at most ``window`` posts are unconfirmed. Further
/// posts wait here, within ``Limits`` (E1).
///
/// With batches (F1), the answers also show whether the line is idle. With ``few`` or more posts in flight, further
/// posts **accumulate** until an answer arrives or the batch is full. Any other request, and ``hurry()``, make the
/// accumulated posts leave at once.
///
/// Makes decisions and does no input or output. Not thread-safe by itself.
public struct Outbox<Request> {
    /// The maximum number of posts in flight: enough to keep the line busy until an answer arrives, with little memory.
    static var window: Int { 256 }
    static var confirmEvery: Int { 64 }
    /// The limits of a batch in posts and bytes; one answer confirms as many posts.
    static var maxTogether: Int { 64 }
    static var maxBytesTogether: Int { 64 << 10 }
    /// The number of posts in flight below which the line counts as idle.
    static var few: Int { 8 }

    /// The window and the batch limit of a channel, which does not use the memory of the bus.
    static var channelWindow: Int { 1024 }
    static var maxChannelBatch: Int { 256 }

    public struct Limits: Sendable {
        /// The maximum number of waiting posts: as many as the service would queue for one client.
        public var count = 131_072
        public var byteCount = 64 << 20

        public init(count: Int = 131_072, byteCount: Int = 64 << 20) {
            self.count = count
            self.byteCount = byteCount
        }
    }

    let limits: Limits
    private struct Entry {
        let request: Request
        let kind: Kind
        let byteCount: Int
    }

    /// The kind of a request: whether it counts as a post in flight, and whether it is answered.
    enum Kind {
        case post(wantsAnswer: Bool)
        /// A registration: answered, and limited in flight like a post. If it is removed before its answer arrives, the
        /// service can remove it only after that. Meanwhile it must not use up the service's limits (E1).
        case registration
        /// A barrier, whose answer confirms all earlier requests.
        case barrier
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

    /// The reason why ``next(_:)`` returned nothing although requests wait. It holds until an answer arrives.
    private enum Hold {
        /// The window is full.
        case window
        /// Posts accumulate.
        case batch
    }

    private var waiting = Deque<Entry>()
    private var waitingPosts = 0
    /// The number of waiting requests that may not wait for a batch.
    private var waitingUrgently = 0
    /// The number of requests at the head of the queue that no longer wait for a batch.
    private var urgentHead = 0
    private var hold: Hold?
    /// The number of requests that have left since the start.
    private(set) var departures: UInt64 = 0
    /// The number of posts that have been confirmed since the start.
    private var confirmations: UInt64 = 0
    /// A counter that changes whenever a request leaves or is confirmed.
    var progress: UInt64 { departures &+ confirmations }
    /// The number of posts that have not left, and the number of posts that are not known to have arrived.
    var unsent: (waiting: Int, unconfirmed: Int) {
        (waitingPosts, max(0, unconfirmed - silent.refused) + silent.unanswered + silent.unresolved)
    }
    private var byteCount = 0
    private var unconfirmed = 0
    private var sinceConfirmation = 0
    /// The posts in flight on the bus that asked for no answer.
    private var silent = SilentPosts()

    /// The effect of an answer.
    struct Confirmation: Equatable {
        /// The number of requests that are no longer in flight.
        var count: Int
        /// The number of these requests that asked for no answer.
        var silent: Int

        static var nothing: Self { Self(count: 0, silent: 0) }
    }

    init(limits: Limits = Limits()) {
        self.limits = limits
    }

    var isEmpty: Bool { waiting.isEmpty }

    /// Whether one more post of this size is within the limits.
    func hasRoom(byteCount: Int) -> Bool {
        waitingPosts < limits.count && self.byteCount + byteCount <= limits.byteCount
    }

    /// - Returns: whether the request may leave, so that the caller must call ``next(_:)``. Otherwise the next answer
    ///   leads to that call.
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

    /// Whether a post without an awaited answer may bypass the queue, because it would leave at once, alone and
    /// unanswered.
    var mayPass: Bool { waiting.isEmpty && unconfirmed + 1 < Self.few && sinceConfirmation + 1 < Self.confirmEvery }

    /// Counts such a post, which has left.
    mutating func passed() {
        unconfirmed += 1
        sinceConfirmation += 1
        silent.add(1)
    }

    /// Whether a post may bypass the queue over a channel, where each such post is answered.
    var mayBypassOnChannel: Bool { waiting.isEmpty && unconfirmed + 1 < Self.few }

    mutating func passedOnOwnWay() {
        unconfirmed += 1
    }

    /// Whether posts accumulate since the last call of ``next(_:)``.
    var isPilingUp: Bool { hold == .batch }

    /// Lets the waiting requests leave without waiting for a batch.
    mutating func hurry() { urgentHead = waiting.count }

    /// The way in which posts may leave.
    enum Posting {
        case oneByOne
        /// Accumulated posts leave in a batch.
        case together
        /// Posts have to wait, and so do the requests behind them.
        case not
    }

    /// Removes the next request or batch to send.
    ///
    /// - Returns: one request, or the posts of a batch. If an answer is required, its confirmation is included and goes
    ///   to ``confirmed(_:)``. Nil when nothing waits, or when posts in flight have to be confirmed first.
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
        let most = areTogether ? Self.maxTogether : 1
        var requests: [Request] = []
        var (bytes, wantsAnswer) = (0, false)
        while let next = waiting.first, requests.isEmpty || next.kind.isPost, requests.count < most,
            unconfirmed < Self.window, requests.isEmpty || bytes + next.byteCount <= Self.maxBytesTogether
        {
            bytes += next.byteCount
            unconfirmed += 1
            sinceConfirmation += 1
            if next.kind.isAnswered || sinceConfirmation == Self.confirmEvery { wantsAnswer = true }
            requests.append(takeFirst())
        }
        // Accumulating posts wait for an answer, so one is requested.
        if areTogether, unconfirmed >= Self.few { wantsAnswer = true }
        guard wantsAnswer else {
            silent.add(requests.count)
            return (requests, nil)
        }
        return (requests, confirmation(asking: requests.count))
    }

    /// Whether posts have left after the last post that asks for an answer, or such an answer has failed.
    var isConfirmationDue: Bool { sinceConfirmation > 0 || silent.unanswered > 0 }

    /// The confirmation of a question that is asked now, behind posts that asked for no answer.
    ///
    /// - Returns: nil when there are no such posts, or when another answer is on its way.
    mutating func requestConfirmation() -> Confirmation? {
        guard isConfirmationDue, unconfirmed == sinceConfirmation else { return nil }
        return confirmation(asking: 0)
    }

    /// - Parameter count: the number of requests that ask for the next answer, among the requests that it confirms.
    private mutating func confirmation(asking count: Int) -> Confirmation {
        defer { sinceConfirmation = 0 }
        return Confirmation(count: sinceConfirmation, silent: sinceConfirmation - count)
    }

    /// Whether the next request is a post; nil when nothing waits.
    var isPostNext: Bool? { waiting.first?.kind.isPost }

    /// Removes the posts at the head of the queue that leave together over a channel; none when posts in flight have to
    /// be confirmed first.
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

    /// Puts removed posts back at the head of the queue.
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

    /// Applies an answer that arrived on the bus.
    mutating func confirmed(_ confirmation: Confirmation) {
        silent.confirm(confirmation.silent)
        confirmed(confirmation.count)
    }

    /// Counts refused posts that the service has announced and that asked for no answer.
    ///
    /// - Parameter isEnding: whether the announcing service has given up its name.
    mutating func refused(_ count: Int, isEnding: Bool = false) {
        if isEnding { silent.refuseUnresolved(count) } else { silent.refuse(count) }
    }

    /// Applies the failure of an answer: it is unknown which posts were taken.
    mutating func failed(_ confirmation: Confirmation) {
        silent.fail(confirmation.silent)
        unconfirmed = max(0, unconfirmed - confirmation.count)
        hold = nil
    }

    /// Counts removed posts that ask for an answer after all. The answer also confirms earlier requests.
    mutating func asks(_ count: Int) -> Confirmation {
        silent.withdraw(count)
        return confirmation(asking: count)
    }

    /// Counts posts that ask for no answer among those of a confirmation.
    mutating func leaveSilently(_ count: Int, of confirmation: inout Confirmation) {
        silent.add(count)
        confirmation.silent += count
    }

    /// Counts posts that are no longer in flight.
    mutating func confirmed(_ count: Int) {
        unconfirmed = max(0, unconfirmed - count)
        confirmations &+= UInt64(count)
        hold = nil
    }

    /// Resets the requests in flight, which no answer will confirm any more, except for `count` posts.
    ///
    /// - Parameter isTaken: whether the service has answered after all requests in flight. Otherwise the posts that
    ///   asked for no answer become unresolved.
    mutating func reset(keeping count: Int = 0, isTaken: Bool = false) {
        if isTaken { silent.confirmAll() } else { silent.serviceEnded() }
        (unconfirmed, sinceConfirmation, hold) = (count, 0, nil)
    }

    /// The number of posts of which it is unknown whether an ended service has taken them.
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
