// SPDX-License-Identifier: Apache-2.0
import Collections

/// The queues of all posters that have something queued.
///
/// Posters take turns, so that the hundred thousand of one hold up no other. A poster that left the bus keeps its queue
/// until that is empty: what was accepted is posted.
///
/// What waits for its poster's exit (R4) stands apart, in a queue of its own, and has no turn until then.
struct PostingQueues {
    private let meter: StepMeter
    private var queues: [ClientName: PostingQueue] = [:]
    private var untilExit: [ClientName: PostingQueue] = [:]
    /// By ``PostingStyle/order``: the queues that may have a post of the style, each once.
    private var lines = PostingStyle.allCases.map { _ in Deque<PostingQueue>() }
    private var lastNumber: UInt64 = 0
    private(set) var count = 0
    private(set) var byteCount = 0
    /// By ``PostingStyle/order``.
    private var countsOfStyles = PostingStyle.allCases.map { _ in 0 }

    init(meter: StepMeter) {
        self.meter = meter
    }

    func count(_ style: PostingStyle) -> Int { countsOfStyles[style.order] }

    /// Who pays for what waits in the queues.
    var payers: [Peer] { (Array(queues.values) + untilExit.values).map(\.payer) }

    func payer(of poster: ClientName) -> Peer? { (queues[poster] ?? untilExit[poster])?.payer }

    /// Those with posts that wait for their exit.
    var postersUntilExit: [ClientName] { Array(untilExit.keys) }

    /// Where a post of a style looks for similar ones. One that waits for its poster's exit takes the place only of what
    /// does that, too: what is to be heard while the poster is there is heard then, and not the exit.
    private func queues(of poster: ClientName, similarTo style: PostingStyle) -> [PostingQueue] {
        (style == .atExit ? [untilExit[poster]] : [queues[poster], untilExit[poster]]).compactMap(\.self)
    }

    /// What one poster has queued, and what of it a post of this name, object and style would take the place of.
    func usage(
        of poster: ClientName, name: String, object: String, style: PostingStyle, coalescing: Set<CoalescingKey>
    ) -> (count: Int, byteCount: Int, similar: (count: Int, byteCount: Int)) {
        var (count, byteCount, similar) = (0, 0, (count: 0, byteCount: 0))
        for queue in [queues[poster], untilExit[poster]] {
            guard let queue else { continue }
            (count, byteCount) = (count + queue.count, byteCount + queue.byteCount)
        }
        for queue in queues(of: poster, similarTo: style) {
            let found = queue.similar(name: name, object: object, coalescing: coalescing)
            similar = (similar.count + found.count, similar.byteCount + found.byteCount)
        }
        return (count, byteCount, similar)
    }

    /// All posts in the order in which they were queued, and that keeps the order of each poster.
    func forEach(_ body: (ClientName, PendingPost) -> Void) {
        var all: [(number: UInt64, poster: ClientName, post: PendingPost)] = []
        all.reserveCapacity(count)
        for queue in Array(queues.values) + untilExit.values {
            queue.forEach { all.append(($1, queue.poster, $0)) }
        }
        meter.count(all.count)
        meter.countSort(of: all.count)
        all.sort { $0.number < $1.number }
        for (_, poster, post) in all { body(poster, post) }
    }

    /// How many there are of a name and an object, by style.
    func counts(name: String, object: String) -> [PostingStyle: Int] {
        meter.count(count)
        var counts: [PostingStyle: Int] = [:]
        for queue in Array(queues.values) + untilExit.values {
            queue.forEach { post, _ in
                guard ExactText(post.name) == ExactText(name), ExactText(post.object) == ExactText(object) else {
                    return
                }
                counts[post.style, default: 0] += 1
            }
        }
        return counts
    }

    /// Puts a post at the tail of its poster's queue, in the place of all similar ones (Q3).
    ///
    /// - Parameter post: its style is not ``PostingStyle/now``.
    /// - Returns: how many it replaced.
    mutating func enqueue(_ post: PendingPost, from payer: Peer, coalescing: Set<CoalescingKey>) -> Int {
        let poster = payer.name
        let replaced = removeSimilar(
            of: poster, name: post.name, object: post.object, style: post.style, coalescing: coalescing)
        var post = post
        post.takeOver(from: replaced)
        append(post, from: payer)
        return replaced.count
    }

    private mutating func append(_ post: PendingPost, from payer: Peer) {
        let poster = payer.name
        let waitsForExit = post.style == .atExit
        let queue = (waitsForExit ? untilExit[poster] : queues[poster]) ?? PostingQueue(payer: payer, meter: meter)
        if waitsForExit { untilExit[poster] = queue } else { queues[poster] = queue }
        lastNumber += 1
        let number = lastNumber
        changing(queue, post.style) { queue.append(post, number: number) }
        guard !waitsForExit, !queue.isInLine[post.style.order] else { return }
        queue.isInLine[post.style.order] = true
        lines[post.style.order].append(queue)
    }

    /// Takes out what a post of this name, object and style takes the place of.
    mutating func removeSimilar(
        of poster: ClientName, name: String, object: String, style: PostingStyle, coalescing: Set<CoalescingKey>
    ) -> [PendingPost] {
        guard !coalescing.isEmpty else { return [] }
        return queues(of: poster, similarTo: style).flatMap { queue in
            removing(from: queue) { queue.removeSimilar(name: name, object: object, coalescing: coalescing) }
        }
    }

    /// Takes out the posts of this name and object; the empty string means any.
    ///
    /// - Returns: how many there were.
    mutating func withdraw(of poster: ClientName, name: String, object: String) -> Int {
        var parts: Set<CoalescingKey> = []
        if !name.isEmpty { parts.insert(.name) }
        if !object.isEmpty { parts.insert(.object) }
        var count = 0
        for queue in [queues[poster], untilExit[poster]] {
            guard let queue else { continue }
            count +=
                removing(from: queue) {
                    parts.isEmpty
                        ? queue.removeAll() : queue.removeSimilar(name: name, object: object, coalescing: parts)
                }.count
        }
        return count
    }

    /// The poster has left: what waited for that is posted as soon as possible, behind what else it has queued so.
    ///
    /// - Parameter now: ``Clock/uptime``, from which on what expires does.
    /// - Returns: how many posts that were.
    mutating func releaseAtExit(of poster: ClientName, now: Int64) -> Int {
        guard let queue = untilExit[poster] else { return 0 }
        let released = removing(from: queue) { queue.removeAll() }
        meter.count(released.count)
        for var post in released {
            post.style = .asap
            if let seconds = post.secondsAfterExit.take() { post.expiry = Clock.expiry(in: seconds, from: now) }
            append(post, from: queue.payer)
        }
        return released.count
    }

    private mutating func removing(
        from queue: PostingQueue, _ remove: () -> [PendingPost]
    ) -> [PendingPost] {
        let removed = remove()
        meter.count(removed.count)
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
                && countsOfStyles[0] == 0 && countsOfStyles.reduce(0, +) == count,
            "Q7: the totals of posts that wait are their sums")
    }

    func checkInvariants() throws(BrokenInvariant) {
        var sum = (count: 0, byteCount: 0)
        var counts = PostingStyle.allCases.map { _ in 0 }
        for (poster, queue) in Array(queues) + Array(untilExit) {
            try require(poster == queue.poster && queue.count > 0, "Q7: who has nothing queued has no queue")
            try require(
                queue.isEmpty(.atExit) == (untilExit[poster] !== queue), "R4: what waits for an exit stands apart")
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
        guard queue.count == 0 else { return }
        if queues[queue.poster] === queue { queues[queue.poster] = nil }
        if untilExit[queue.poster] === queue { untilExit[queue.poster] = nil }
    }
}
