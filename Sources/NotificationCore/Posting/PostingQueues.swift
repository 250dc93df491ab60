import Collections

/// The queues of all posters that have something queued.
///
/// Posters take turns, so that the hundred thousand of one hold up no other. A poster that left the bus keeps its queue
/// until that is empty: what was accepted is posted.
struct PostingQueues {
    private var queues: [ClientName: PostingQueue] = [:]
    /// By ``PostingStyle/order``: the queues that may have a post of the style, each once.
    private var lines = [Deque<PostingQueue>(), Deque(), Deque()]
    private var lastNumber: UInt64 = 0
    private(set) var count = 0
    private(set) var byteCount = 0
    /// By ``PostingStyle/order``.
    private var countsOfStyles = [0, 0, 0]

    func count(_ style: PostingStyle) -> Int { countsOfStyles[style.order] }

    /// Who pays for what waits in the queues.
    var payers: [Peer] { queues.values.map(\.payer) }

    func payer(of poster: ClientName) -> Peer? { queues[poster]?.payer }

    /// What one poster has queued, and what of it a post of this name and object would take the place of.
    func usage(
        of poster: ClientName, name: String, object: String, coalescing: Set<CoalescingKey>
    ) -> (count: Int, byteCount: Int, similar: (count: Int, byteCount: Int)) {
        guard let queue = queues[poster] else { return (0, 0, (0, 0)) }
        return (queue.count, queue.byteCount, queue.similar(name: name, object: object, coalescing: coalescing))
    }

    /// All posts in the order in which they were queued, and that keeps the order of each poster.
    func forEach(_ body: (ClientName, PendingPost) -> Void) {
        var all: [(number: UInt64, poster: ClientName, post: PendingPost)] = []
        all.reserveCapacity(count)
        for queue in queues.values { queue.forEach { all.append(($1, queue.poster, $0)) } }
        all.sort { $0.number < $1.number }
        for (_, poster, post) in all { body(poster, post) }
    }

    /// Puts a post at the tail of its poster's queue, in the place of all similar ones (Q3).
    ///
    /// - Parameter post: its style is not ``PostingStyle/now``.
    /// - Returns: how many it replaced.
    mutating func enqueue(_ post: PendingPost, from payer: Peer, coalescing: Set<CoalescingKey>) -> Int {
        let poster = payer.name
        let replaced = removeSimilar(of: poster, name: post.name, object: post.object, coalescing: coalescing)
        var post = post
        post.takeOver(from: replaced)
        let queue = queues[poster] ?? PostingQueue(payer: payer)
        queues[poster] = queue
        lastNumber += 1
        let number = lastNumber
        changing(queue, post.style) { queue.append(post, number: number) }
        if !queue.isInLine[post.style.order] {
            queue.isInLine[post.style.order] = true
            lines[post.style.order].append(queue)
        }
        return replaced.count
    }

    /// Takes out what a post of this name and object takes the place of.
    mutating func removeSimilar(
        of poster: ClientName, name: String, object: String, coalescing: Set<CoalescingKey>
    ) -> [PendingPost] {
        guard !coalescing.isEmpty, let queue = queues[poster] else { return [] }
        let removed = queue.removeSimilar(name: name, object: object, coalescing: coalescing)
        for post in removed {
            count -= 1
            byteCount -= post.byteCount
            countsOfStyles[post.style.order] -= 1
        }
        checkTotals()
        forgetIfEmpty(queue)
        return removed
    }

    /// Takes the first post of a style of the poster whose turn it is.
    mutating func take(_ style: PostingStyle) -> (post: PendingPost, payer: Peer)? {
        let line = style.order
        while let queue = lines[line].popFirst() {
            let post = changing(queue, style) { queue.popFirst(style) }
            if queue.isEmpty(style) {
                queue.isInLine[line] = false
            } else {
                lines[line].append(queue)
            }
            forgetIfEmpty(queue)
            if let post { return (post, queue.payer) }
        }
        return nil
    }

    /// Takes the first post of a style of one poster, as an earlier process did: then it was that poster's turn.
    mutating func take(_ style: PostingStyle, of poster: ClientName) -> PendingPost? {
        guard let queue = queues[poster], !queue.isEmpty(style) else { return nil }
        if lines[style.order].first(where: { !$0.isEmpty(style) }) === queue { return take(style)?.post }
        // The log was written anew since, and does not hold whose turn it was.
        let post = changing(queue, style) { queue.popFirst(style) }
        forgetIfEmpty(queue)
        return post
    }

    private mutating func changing<Result>(
        _ queue: PostingQueue, _ style: PostingStyle, _ change: () -> Result
    ) -> Result {
        let (count, byteCount) = (queue.count, queue.byteCount)
        let result = change()
        self.count += queue.count - count
        countsOfStyles[style.order] += queue.count - count
        self.byteCount += queue.byteCount - byteCount
        checkTotals()
        return result
    }

    private func checkTotals() {
        invariant(
            count >= 0 && byteCount >= 0 && (count == 0) == (byteCount == 0)
                && countsOfStyles[PostingStyle.asap.order] + countsOfStyles[PostingStyle.whenIdle.order] == count,
            "Q7: the totals of posts that wait are their sums")
    }

    func checkInvariants() throws(BrokenInvariant) {
        var sum = (count: 0, byteCount: 0)
        var counts = [0, 0, 0]
        for (poster, queue) in queues {
            try require(poster == queue.poster && queue.count > 0, "Q7: who has nothing queued has no queue")
            try queue.checkInvariants(lastNumber: lastNumber)
            sum = (sum.count + queue.count, sum.byteCount + queue.byteCount)
            queue.forEach { post, _ in counts[post.style.order] += 1 }
        }
        try require(
            sum == (count, byteCount) && counts == countsOfStyles, "Q7: the totals of posts that wait are their sums")
        for (line, style) in PostingStyle.allCases.enumerated() {
            var places: [ObjectIdentifier: Int] = [:]
            for queue in lines[line] {
                places[ObjectIdentifier(queue), default: 0] += 1
                try require(queue.isInLine[line], "Q7: a queue in line knows it")
                try require(queue.count == 0 || queues[queue.poster] === queue, "Q7: a queue in line is a poster's")
            }
            try require(places.values.allSatisfy { $0 == 1 }, "Q7: a poster has one place in line")
            for queue in queues.values where places[ObjectIdentifier(queue)] == nil {
                try require(
                    !queue.isInLine[line] && queue.isEmpty(style), "Q7: \(queue.poster), which waits, is in line")
            }
        }
    }

    private mutating func forgetIfEmpty(_ queue: PostingQueue) {
        // It may still have a place in a line; a new queue of the poster gets one of its own.
        if queue.count == 0, queues[queue.poster] === queue { queues[queue.poster] = nil }
    }
}
