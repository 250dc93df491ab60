// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// What the program has asked for and the service did not get yet: requests in order, and how many posts may be on
/// their way at once.
///
/// A poster that never waits for an answer would pile its posts up in the bus, whose memory it shares with everyone.
/// So every ``confirmEvery``th post asks for an answer, and no more than ``window`` are on their way without one; the
/// rest waits here, bounded (E1).
///
/// Where posts can go together (F1) the answers also tell whether the line is idle: with ``few`` of them on their way
/// the next ones **pile up** until an answer comes, or there are as many as go together. Nobody waits for longer than that
/// for company: whatever else is asked for has them go at once, and so does ``hurry()``.
///
/// Decides and does no input or output. Not thread-safe by itself.
public struct Outbox<Request> {
    /// Posts on their way at most. Enough to keep the line busy for the time of an answer, and little memory.
    static var window: Int { 256 }
    static var confirmEvery: Int { 64 }
    /// Posts that go together at most, in number and in bytes: as many as one answer confirms.
    static var maxTogether: Int { 64 }
    static var maxBytesTogether: Int { 64 << 10 }
    /// While fewer posts than this are on their way the line counts as idle.
    static var few: Int { 8 }

    /// The same by a way of their own, on which nothing has to be looked up in the memory of others.
    static var ownWayWindow: Int { 1024 }
    static var maxOnOwnWay: Int { 256 }

    public struct Limits: Sendable {
        /// As many as the service would queue for one client.
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

    /// What counts as a post on its way, and whether it is answered.
    enum Kind {
        case post(wantsAnswer: Bool)
        /// Answered, and no more of them on their way than posts: one that is removed before its answer came can be
        /// removed only after that, and must not use up the service's limits meanwhile (E1).
        case registration
        /// Its answer confirms what has left before.
        case barrier
        case other

        var isPost: Bool {
            if case .post = self { true } else { false }
        }

        /// Whether whoever asked for it wants an answer.
        var isAnswered: Bool {
            switch self {
            case .post(let wantsAnswer): wantsAnswer
            case .registration, .barrier: true
            case .other: false
            }
        }

        /// Whether nobody waits for it: a post that may wait for others.
        var isPatient: Bool { isPost && !isAnswered }
    }

    /// Why ``next(_:)`` had nothing although something waits: until an answer comes.
    private enum Hold {
        /// No more may be on their way.
        case window
        /// They pile up.
        case pile
    }

    private var waiting = Deque<Entry>()
    private var waitingPosts = 0
    /// Those of all that wait that are no posts which may wait for others.
    private var waitingUrgently = 0
    /// So many of the first wait for nobody.
    private var hurried = 0
    private var hold: Hold?
    /// How many have left, ever.
    private(set) var departures: UInt64 = 0
    /// How many posts have been confirmed, ever.
    private var confirmations: UInt64 = 0
    /// Another one whenever something has left, or was confirmed.
    var progress: UInt64 { departures &+ confirmations }
    /// Posts that have not left, and those of which nobody knows whether they have arrived.
    var unsent: (waiting: Int, unconfirmed: Int) {
        (waitingPosts, max(0, unconfirmed - silent.refused) + silent.unanswered + silent.unresolved)
    }
    private var byteCount = 0
    private var unconfirmed = 0
    private var sinceConfirmation = 0
    /// Those of all that are on their way on the bus that asked for no answer.
    private var silent = SilentPosts()

    /// The effect of an answer.
    struct Confirmation: Equatable {
        /// Requests that are not on their way any more.
        var count: Int
        /// Those of them that asked for no answer.
        var silent: Int

        static var nothing: Self { Self(count: 0, silent: 0) }
    }

    init(limits: Limits = Limits()) {
        self.limits = limits
    }

    var isEmpty: Bool { waiting.isEmpty }

    /// Whether one more post of this size is within the bounds.
    func hasRoom(byteCount: Int) -> Bool {
        waitingPosts < limits.count && self.byteCount + byteCount <= limits.byteCount
    }

    /// - Returns: whether it may leave: ``next(_:)`` is to be asked. Otherwise it is when an answer comes.
    @discardableResult
    mutating func append(_ request: Request, _ kind: Kind, byteCount: Int = 0) -> Bool {
        waiting.append(Entry(request: request, kind: kind, byteCount: byteCount))
        count(kind, byteCount, by: 1)
        switch hold {
        case nil: return true
        case .window: return false
        case .pile: return !pilesUp
        }
    }

    private mutating func count(_ kind: Kind, _ byteCount: Int, by sign: Int) {
        if kind.isPost { waitingPosts += sign }
        if !kind.isPatient { waitingUrgently += sign }
        self.byteCount += sign * byteCount
    }

    /// Whether what waits, posts that can go together, waits for an answer to those on their way.
    private var pilesUp: Bool {
        unconfirmed >= Self.few && hurried == 0 && waitingUrgently == 0 && waitingPosts < Self.maxTogether
            && byteCount < Self.maxBytesTogether
    }

    /// Whether a post that nobody waits for may pass by, as it would leave at once, alone and unanswered.
    var mayPass: Bool { waiting.isEmpty && unconfirmed + 1 < Self.few && sinceConfirmation + 1 < Self.confirmEvery }

    /// Such a post has left.
    mutating func passed() {
        unconfirmed += 1
        sinceConfirmation += 1
        silent.add(1)
    }

    /// The same by a way of their own, on which each is answered.
    var mayPassOnOwnWay: Bool { waiting.isEmpty && unconfirmed + 1 < Self.few }

    mutating func passedOnOwnWay() {
        unconfirmed += 1
    }

    /// Whether posts pile up since ``next(_:)`` was asked.
    var isPilingUp: Bool { hold == .pile }

    /// What has piled up waits for nobody.
    mutating func hurry() { hurried = waiting.count }

    /// How posts may leave.
    enum Posting {
        case oneByOne
        /// Those that have piled up go together.
        case together
        /// They have to wait, and what was asked for behind them, too.
        case not
    }

    /// What to send next; nil when nothing waits, or when posts on their way have to be confirmed first.
    ///
    /// - Returns: one request, or several posts that go together; for what shall be answered also what the answer
    ///   confirms: it goes to ``confirmed(_:)``.
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
        guard !areTogether || !pilesUp else {
            hold = .pile
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
        // Whoever piles up waits for an answer.
        if areTogether, unconfirmed >= Self.few { wantsAnswer = true }
        guard wantsAnswer else {
            silent.add(requests.count)
            return (requests, nil)
        }
        return (requests, confirmation(asking: requests.count))
    }

    /// Whether posts have left behind the last one that asks for an answer, or such an answer has failed.
    var isConfirmationDue: Bool { sinceConfirmation > 0 || silent.unanswered > 0 }

    /// The answer to a question that is asked now, behind posts that have asked for none.
    ///
    /// - Returns: nil where none have, and where another answer is on its way.
    mutating func askForConfirmation() -> Confirmation? {
        guard isConfirmationDue, unconfirmed == sinceConfirmation else { return nil }
        return confirmation(asking: 0)
    }

    /// - Parameter count: how many of those that the next answer confirms ask for it.
    private mutating func confirmation(asking count: Int) -> Confirmation {
        defer { sinceConfirmation = 0 }
        return Confirmation(count: sinceConfirmation, silent: sinceConfirmation - count)
    }

    /// Whether a post is next; nil when nothing waits.
    var isPostNext: Bool? { waiting.first?.kind.isPost }

    /// The posts that stand first and go together, by a way of their own; none when those on their way have to be
    /// confirmed first.
    mutating func nextPosts() -> [Request] {
        hold = nil
        var requests: [Request] = []
        var bytes = 0
        while let next = waiting.first, next.kind.isPost, requests.count < Self.maxOnOwnWay,
            unconfirmed < Self.ownWayWindow, requests.isEmpty || bytes + next.byteCount <= Self.maxBytesTogether
        {
            bytes += next.byteCount
            unconfirmed += 1
            requests.append(takeFirst())
        }
        return requests
    }

    /// Puts posts that were taken out before all others.
    mutating func putBack(_ posts: [(request: Request, wantsAnswer: Bool, byteCount: Int)]) {
        for (request, wantsAnswer, byteCount) in posts.reversed() {
            let kind = Kind.post(wantsAnswer: wantsAnswer)
            waiting.prepend(Entry(request: request, kind: kind, byteCount: byteCount))
            count(kind, byteCount, by: 1)
        }
        if hurried > 0 { hurried += posts.count }
        hold = nil
    }

    /// How many requests wait of those that fulfil the condition.
    func count(where condition: (Request) -> Bool) -> Int {
        waiting.reduce(0) { $0 + (condition($1.request) ? 1 : 0) }
    }

    /// An answer came on the bus.
    mutating func confirmed(_ confirmation: Confirmation) {
        silent.confirm(confirmation.silent)
        confirmed(confirmation.count)
    }

    /// The service has announced posts that asked for no answer, and that it has refused.
    ///
    /// - Parameter isEnding: whether it is one that has given up the service's name.
    mutating func refused(_ count: Int, isEnding: Bool = false) {
        if isEnding { silent.refuseUnresolved(count) } else { silent.refuse(count) }
    }

    /// There is no answer, and it is not known what was taken.
    mutating func failed(_ confirmation: Confirmation) {
        silent.fail(confirmation.silent)
        unconfirmed = max(0, unconfirmed - confirmation.count)
        hold = nil
    }

    /// Posts that were taken out have asked for an answer after all, which confirms what has left before as well.
    mutating func asks(_ count: Int) -> Confirmation {
        silent.withdraw(count)
        return confirmation(asking: count)
    }

    /// A number of those that are confirmed together ask for no answer.
    mutating func leaveSilently(_ count: Int, of confirmation: inout Confirmation) {
        silent.add(count)
        confirmation.silent += count
    }

    /// A number of posts is not on its way any more.
    mutating func confirmed(_ count: Int) {
        unconfirmed = max(0, unconfirmed - count)
        confirmations &+= UInt64(count)
        hold = nil
    }

    /// Nothing that is on its way will be confirmed any more, but so many posts.
    ///
    /// - Parameter isTaken: whether the service has answered behind all that is on its way. Otherwise the posts that asked for
    ///   no answer are unresolved from now on.
    mutating func reset(keeping count: Int = 0, isTaken: Bool = false) {
        if isTaken { silent.confirmAll() } else { silent.serviceEnded() }
        (unconfirmed, sinceConfirmation, hold) = (count, 0, nil)
    }

    /// The number of posts of which it is not known whether a service that has ended has taken them.
    var unresolved: Int { silent.unresolved }

    /// It is known now, or never will be.
    ///
    /// - Returns: how many they were.
    mutating func resolve() -> Int { silent.resolve() }

    /// Takes out everything that waits, in order.
    mutating func removeAll() -> [Request] {
        defer {
            waiting.removeAll()
            (waitingPosts, waitingUrgently, hurried, byteCount) = (0, 0, 0, 0)
            hold = nil
        }
        return waiting.map(\.request)
    }

    private mutating func takeFirst() -> Request {
        let entry = waiting.popFirst()!
        count(entry.kind, entry.byteCount, by: -1)
        hurried = max(0, hurried - 1)
        departures += 1
        return entry.request
    }
}
