import Collections

/// What the program has asked for and the service did not get yet: requests in order, and how many posts may be on
/// their way at once.
///
/// A poster that never waits for an answer would pile its posts up in the bus, whose memory it shares with everyone.
/// So every ``confirmEvery``th post asks for an answer, and no more than ``window`` are on their way without one; the
/// rest waits here, bounded (E1).
///
/// Decides and does no input or output. Not thread-safe by itself.
public struct Outbox<Request> {
    /// Posts on their way at most. Enough to keep the line busy for the time of an answer, and little memory.
    static var window: Int { 256 }
    static var confirmEvery: Int { 64 }
    /// Posts that go together at most, in number and in bytes: as many as one answer confirms.
    static var mostTogether: Int { 64 }
    static var mostBytesTogether: Int { 64 << 10 }

    /// The same by a way of their own, on which nothing has to be looked up in the memory of others.
    static var ownWayWindow: Int { 1024 }
    static var mostOnOwnWay: Int { 256 }

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
        case other

        var isPost: Bool {
            if case .post = self { true } else { false }
        }

        /// Whether whoever asked for it wants an answer.
        var isAnswered: Bool {
            switch self {
            case .post(let wantsAnswer): wantsAnswer
            case .registration: true
            case .other: false
            }
        }
    }

    private var waiting = Deque<Entry>()
    private var waitingPosts = 0
    private var byteCount = 0
    private var unconfirmed = 0
    private var sinceConfirmation = 0

    init(limits: Limits = Limits()) {
        self.limits = limits
    }

    var isEmpty: Bool { waiting.isEmpty }

    /// Whether one more post of this size is within the bounds.
    func hasRoom(byteCount: Int) -> Bool {
        waitingPosts < limits.count && self.byteCount + byteCount <= limits.byteCount
    }

    mutating func append(_ request: Request, _ kind: Kind, byteCount: Int = 0) {
        waiting.append(Entry(request: request, kind: kind, byteCount: byteCount))
        if kind.isPost { waitingPosts += 1 }
        self.byteCount += byteCount
    }

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
    /// - Returns: one request, or several posts that go together; for what shall be answered also how many the answer
    ///   confirms: it goes to ``confirmed(_:)``.
    mutating func next(_ posting: Posting = .oneByOne) -> (requests: [Request], confirms: Int?)? {
        guard let first = waiting.first else { return nil }
        if case .other = first.kind { return ([takeFirst()], nil) }
        if first.kind.isPost, posting == .not { return nil }
        guard unconfirmed < Self.window else { return nil }
        let most = first.kind.isPost && posting == .together ? Self.mostTogether : 1
        var requests: [Request] = []
        var (bytes, wantsAnswer) = (0, false)
        while let next = waiting.first, requests.isEmpty || next.kind.isPost, requests.count < most,
            unconfirmed < Self.window, requests.isEmpty || bytes + next.byteCount <= Self.mostBytesTogether
        {
            bytes += next.byteCount
            unconfirmed += 1
            sinceConfirmation += 1
            if next.kind.isAnswered || sinceConfirmation == Self.confirmEvery { wantsAnswer = true }
            requests.append(takeFirst())
        }
        guard wantsAnswer else { return (requests, nil) }
        defer { sinceConfirmation = 0 }
        return (requests, sinceConfirmation)
    }

    /// Whether a post is next; nil when nothing waits.
    var isPostNext: Bool? { waiting.first?.kind.isPost }

    /// The posts that stand first and go together, by a way of their own; none when those on their way have to be
    /// confirmed first.
    mutating func nextPosts() -> [Request] {
        var requests: [Request] = []
        var bytes = 0
        while let next = waiting.first, next.kind.isPost, requests.count < Self.mostOnOwnWay,
            unconfirmed < Self.ownWayWindow, requests.isEmpty || bytes + next.byteCount <= Self.mostBytesTogether
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
            waiting.prepend(Entry(request: request, kind: .post(wantsAnswer: wantsAnswer), byteCount: byteCount))
            waitingPosts += 1
            self.byteCount += byteCount
        }
    }

    /// How many requests wait of those that fulfil the condition.
    func count(where condition: (Request) -> Bool) -> Int {
        waiting.reduce(0) { $0 + (condition($1.request) ? 1 : 0) }
    }

    /// An answer came for a post that wanted one: so many are not on their way any more.
    mutating func confirmed(_ count: Int) {
        unconfirmed = max(0, unconfirmed - count)
    }

    /// Nothing that is on its way will be confirmed any more, but so many posts.
    mutating func reset(keeping count: Int = 0) {
        unconfirmed = count
        sinceConfirmation = 0
    }

    /// Takes out everything that waits, in order.
    mutating func removeAll() -> [Request] {
        defer {
            waiting.removeAll()
            waitingPosts = 0
            byteCount = 0
        }
        return waiting.map(\.request)
    }

    private mutating func takeFirst() -> Request {
        let entry = waiting.popFirst()!
        if entry.kind.isPost { waitingPosts -= 1 }
        byteCount -= entry.byteCount
        return entry.request
    }
}
