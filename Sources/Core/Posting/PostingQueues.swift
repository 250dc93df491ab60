// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The queues of all posters that have something queued.
///
/// Posters take turns, so that the hundred thousand of one hold up no other. A poster that left the bus keeps its queue
/// until that is empty: what was accepted is posted.
///
/// What waits for its poster's exit (R4) stands apart, in a queue of its own, and has no turn until then.
///
/// Many posts are taken out in parts, with other events between them. Until the last part the poster's queues stand still:
/// nothing of them is posted.
struct PostingQueues {
    /// Posts that were taken out of a poster's queues, as far as one that takes their place takes over from them (Q3).
    struct Removed {
        fileprivate(set) var count = 0
        /// The most urgent.
        fileprivate(set) var style = PostingStyle.atExit
        fileprivate(set) var deliverImmediately = false

        fileprivate mutating func note(_ post: PendingPost) {
            count += 1
            style = min(style, post.style)
            deliverImmediately = deliverImmediately || post.deliverImmediately
        }
    }

    private let meter: StepMeter
    private var queues: [ClientName: PostingQueue] = [:]
    private var untilExit: [ClientName: PostingQueue] = [:]
    /// The same of those that have left: what is posted as soon as possible, behind what else they have queued so.
    private var released: [ClientName: PostingQueue] = [:]
    /// Those of whose queues a part was taken out, and what that was.
    private var still: [ClientName: Removed] = [:]
    /// By ``PostingStyle/order``: the places of the queues that may have a post of the style, one each.
    private var lines = PostingStyle.allCases.map { _ in Deque<PostingQueue.Place>() }
    /// The places in each that were given up.
    private var emptyPlaces = PostingStyle.allCases.map { _ in 0 }
    private var lastNumber: UInt64 = 0
    private(set) var count = 0
    private(set) var byteCount = 0
    /// By ``PostingStyle/order``, without what stands still.
    private var counts = SIMD4<Int>()

    /// Gives up what is kept of posters that are gone (E8).
    mutating func releaseRoom() {
        queues.releaseRoom()
        untilExit.releaseRoom()
        released.releaseRoom()
        still.releaseRoom()
    }

    init(meter: StepMeter) {
        self.meter = meter
    }

    /// How many wait that may be posted.
    func count(_ style: PostingStyle) -> Int { counts[style.order] }

    /// Whether posts are being taken out of somebody's queues.
    var isAnyStill: Bool { !still.isEmpty }

    func isStill(_ poster: ClientName) -> Bool { isAnyStill && still[poster] != nil }

    private var all: [PostingQueue] { Array(queues.values) + untilExit.values + released.values }

    private func all(of poster: ClientName) -> [PostingQueue] {
        [queues[poster], untilExit[poster], released[poster]].compactMap(\.self)
    }

    /// The places that they have memory for, to look at.
    var capacity: Int { all.reduce(0) { $0 + $1.capacity } }

    /// Who pays for what waits in the queues.
    var payers: [Peer] { all.map(\.payer) }

    func payer(of poster: ClientName) -> Peer? { (queues[poster] ?? untilExit[poster] ?? released[poster])?.payer }

    /// Those with posts that wait for their exit.
    var postersUntilExit: [ClientName] { Array(untilExit.keys) }

    /// Where a post of a style looks for similar ones. One that waits for its poster's exit takes the place only of what
    /// does that, too: what is to be heard while the poster is there is heard then, and not the exit.
    private func queues(of poster: ClientName, similarTo style: PostingStyle) -> [PostingQueue] {
        (style == .atExit ? [untilExit[poster]] : [queues[poster], released[poster], untilExit[poster]])
            .compactMap(\.self)
    }

    /// What one poster has queued, and what of it a post of this name, object and style would take the place of.
    func usage(
        of poster: ClientName, name: String, object: String, style: PostingStyle, coalescing: Set<CoalescingKey>
    ) -> (count: Int, byteCount: Int, similar: (count: Int, byteCount: Int)) {
        var (count, byteCount, similar) = (0, 0, (count: 0, byteCount: 0))
        for queue in all(of: poster) { (count, byteCount) = (count + queue.count, byteCount + queue.byteCount) }
        for queue in queues(of: poster, similarTo: style) {
            let found = queue.similar(name: name, object: object, coalescing: coalescing)
            similar = (similar.count + found.count, similar.byteCount + found.byteCount)
        }
        return (count, byteCount, similar)
    }

    /// The posts of one style and poster, as they are at one moment.
    struct Snapshot {
        let poster: ClientName
        /// In their order.
        let all: AnySequence<PendingPost>
    }

    /// All posts: of one style after the other, and the posters in the order in which their first ones were queued.
    var snapshots: [Snapshot] {
        let all = all
        meter.count(all.count)
        return PostingStyle.allCases.filter { $0 != .now }.flatMap { style in
            let queues = all.compactMap { queue in queue.firstNumber(of: style).map { (number: $0, queue: queue) } }
            return queues.sorted { $0.number < $1.number }.map { _, queue in
                Snapshot(poster: queue.poster, all: AnySequence(queue.snapshot(of: style)))
            }
        }
    }

    /// How many there are of a name and an object, by style.
    func counts(name: String, object: String) -> [PostingStyle: Int] {
        meter.count(queues.count + untilExit.count + released.count)
        let counts = all.reduce(into: SIMD4<Int>()) { $0 &+= $1.counts(name: name, object: object) }
        return PostingStyle.allCases.reduce(into: [:]) { if counts[$1.order] > 0 { $0[$1] = counts[$1.order] } }
    }

    /// Puts a post at the tail of its poster's queue.
    mutating func append(_ post: PendingPost, from payer: Peer) {
        let poster = payer.name
        let waitsForExit = post.style == .atExit
        if !waitsForExit { joinReleased(of: poster) }
        let queue = (waitsForExit ? untilExit[poster] : queues[poster]) ?? PostingQueue(payer: payer, meter: meter)
        if waitsForExit { untilExit[poster] = queue } else { queues[poster] = queue }
        put(post, into: queue)
        if !waitsForExit { lineUp(queue, post.style) }
    }

    private mutating func put(_ post: PendingPost, into queue: PostingQueue) {
        lastNumber += 1
        let number = lastNumber
        changing(queue) { queue.append(post, number: number) }
    }

    /// Gives a queue a place in the line of a style, if it has none and something to post.
    private mutating func lineUp(_ queue: PostingQueue, _ style: PostingStyle) {
        guard queue.places[style.order] == nil, !queue.isEmpty(style), still[queue.poster] == nil else { return }
        let place = PostingQueue.Place(queue)
        queue.places[style.order] = place
        lines[style.order].append(place)
    }

    /// Takes out what a post of this name, object and style takes the place of, or a part of it.
    ///
    /// - Parameter most: of the posts.
    /// - Returns: what was taken out in all parts; nil when there is more.
    mutating func removeSimilar(
        of poster: ClientName, name: String, object: String, style: PostingStyle, coalescing: Set<CoalescingKey>,
        atMost most: Int
    ) -> Removed? {
        guard !coalescing.isEmpty else { return Removed() }
        var (removed, left) = (still[poster] ?? Removed(), most)
        for queue in queues(of: poster, similarTo: style) {
            left -= changing(queue) {
                queue.removeSimilar(name: name, object: object, coalescing: coalescing, atMost: left) {
                    removed.note($0)
                }
            }
        }
        let isMore = queues(of: poster, similarTo: style).contains {
            $0.similar(name: name, object: object, coalescing: coalescing).count > 0
        }
        setStill(poster, isMore ? removed : nil)
        return isMore ? nil : removed
    }

    /// Takes out the posts of this name and object, or a part of them; the empty string means any.
    ///
    /// - Parameter most: of the posts.
    /// - Returns: how many were taken out in this part, and whether there are more.
    mutating func withdraw(
        of poster: ClientName, name: String, object: String, atMost most: Int
    ) -> (count: Int, isMore: Bool) {
        var parts: Set<CoalescingKey> = []
        if !name.isEmpty { parts.insert(.name) }
        if !object.isEmpty { parts.insert(.object) }
        var count = 0
        for queue in all(of: poster) where count < most {
            count += changing(queue) {
                parts.isEmpty
                    ? queue.removeAny(atMost: most - count)
                    : queue.removeSimilar(name: name, object: object, coalescing: parts, atMost: most - count)
            }
        }
        let isMore = all(of: poster).contains { queue in
            parts.isEmpty || queue.similar(name: name, object: object, coalescing: parts).count > 0
        }
        setStill(poster, isMore ? Removed() : nil)
        return (count, isMore)
    }

    /// Has what a poster has queued stand still, or be posted again.
    private mutating func setStill(_ poster: ClientName, _ removed: Removed?) {
        guard still[poster] != nil || removed != nil else { return }
        let wasStill = still[poster] != nil
        still[poster] = removed
        guard wasStill != (removed != nil) else { return }
        for queue in all(of: poster) {
            if wasStill { counts &+= queue.counts } else { counts &-= queue.counts }
            guard wasStill, queue !== untilExit[poster] else { continue }
            let comesLater = queue === released[poster] && queues[poster]?.isEmpty(.asap) == false
            for style in PostingStyle.allCases where !(comesLater && style == .asap) { lineUp(queue, style) }
        }
    }

    /// The poster has left: what waited for that is posted as soon as possible, behind what else it has queued so.
    ///
    /// - Parameter now: ``Clock/uptime``, from which on what expires does.
    /// - Returns: how many posts that were.
    mutating func releaseAtExit(of poster: ClientName, now: Int64) -> Int {
        // Its calls come before that, so nothing is taken out of its queues any more.
        setStill(poster, nil)
        guard let queue = untilExit.removeValue(forKey: poster) else { return 0 }
        joinReleased(of: poster)
        let count = queue.count
        released[poster] = queue
        lastNumber += 1
        let number = lastNumber
        changing(queue) { queue.release(now: now, number: number) }
        if let other = queues[poster] {
            if other.isEmpty(.asap) { givePlace(of: other, to: queue) }
        } else {
            lineUp(queue, .asap)
        }
        return count
    }

    /// A poster that had left is there again, which no bus has happen: what it left comes before what it queues now.
    private mutating func joinReleased(of poster: ClientName) {
        guard let rest = released.removeValue(forKey: poster) else { return }
        let queue = queues[poster] ?? PostingQueue(payer: rest.payer, meter: meter)
        queues[poster] = queue
        givePlace(of: rest, to: queue)
        while let post = changing(rest, { rest.popFirst(.asap) }) {
            put(post, into: queue)
        }
    }

    /// Gives one queue of a poster the place in line of another, if it has none.
    private mutating func givePlace(of queue: PostingQueue, to other: PostingQueue) {
        let line = PostingStyle.asap.order
        guard other.places[line] == nil else { return giveUpPlace(of: queue, in: line) }
        guard let place = queue.places[line].take() else { return lineUp(other, .asap) }
        place.queue = other
        other.places[line] = place
    }

    private mutating func giveUpPlace(of queue: PostingQueue, in line: Int) {
        guard let place = queue.places[line].take() else { return }
        place.queue = nil
        emptyPlaces[line] += 1
        // In the mean each is looked at once more.
        guard emptyPlaces[line] > Self.maxEmptyPlaces, emptyPlaces[line] > lines[line].count / 2 else { return }
        meter.count(lines[line].count)
        lines[line].removeAll { $0.queue == nil }
        emptyPlaces[line] = 0
    }

    private static let maxEmptyPlaces = 16

    /// Takes the first post of a style of the poster whose turn it is.
    mutating func take(_ style: PostingStyle) -> (post: PendingPost, payer: Peer)? {
        let line = style.order
        while let place = lines[line].popFirst() {
            guard let queue = place.queue else {
                meter.count()
                emptyPlaces[line] -= 1
                continue
            }
            queue.places[line] = nil
            guard still[queue.poster] == nil else { continue }
            let post = changing(queue) { queue.popFirst(style) }
            lineUp(queue, style)
            if let post { return (post, queue.payer) }
        }
        return nil
    }

    /// Takes the first post of a style of one poster, as an earlier process did: then it was that poster's turn.
    mutating func take(_ style: PostingStyle, of poster: ClientName) -> PendingPost? {
        let own = [queues[poster], released[poster]].compactMap(\.self)
        guard let queue = own.first(where: { !$0.isEmpty(style) }) else { return nil }
        let first = lines[style.order].first { $0.queue?.isEmpty(style) == false }
        if first?.queue === queue { return take(style)?.post }
        // The log was written anew since, and does not hold whose turn it was.
        return changing(queue) { queue.popFirst(style) }
    }

    /// Every change of a queue goes through here, so that the totals stay right.
    @discardableResult
    private mutating func changing<Result>(_ queue: PostingQueue, _ change: () -> Result) -> Result {
        let before = (count: queue.count, byteCount: queue.byteCount, counts: queue.counts)
        let result = change()
        count += queue.count - before.count
        byteCount += queue.byteCount - before.byteCount
        if still[queue.poster] == nil { counts &+= queue.counts &- before.counts }
        invariant(
            count >= 0 && byteCount >= 0 && (count == 0) == (byteCount == 0) && counts[PostingStyle.now.order] == 0
                && (counts.wrappedSum() == count || isAnyStill), "Q7: the totals of posts that wait are their sums")
        if let rest = released[queue.poster], rest !== queue, untilExit[queue.poster] !== queue,
            queues[queue.poster]?.isEmpty(.asap) != false
        {
            givePlace(of: queue, to: rest)
        }
        forgetIfEmpty(queue)
        return result
    }

    func checkInvariants() throws(BrokenInvariant) {
        var sum = (count: 0, byteCount: 0, counts: SIMD4<Int>())
        for (poster, queue) in Array(queues) + Array(untilExit) + Array(released) {
            try require(poster == queue.poster && queue.count > 0, "Q7: who has nothing queued has no queue")
            try require(
                queue.isEmpty(.atExit) == (untilExit[poster] !== queue), "R4: what waits for an exit stands apart")
            try queue.checkInvariants(lastNumber: lastNumber)
            sum.count += queue.count
            sum.byteCount += queue.byteCount
            if still[poster] == nil { sum.counts &+= queue.counts }
        }
        try require(
            sum == (count, byteCount, counts), "Q7: the totals of posts that wait are their sums")
        try require(still.keys.allSatisfy { !all(of: $0).isEmpty }, "Q3: what stands still is there")
        for (line, style) in PostingStyle.allCases.enumerated() {
            var places: [ObjectIdentifier: Int] = [:]
            for case let (place, queue?) in lines[line].map({ ($0, $0.queue) }) {
                places[ObjectIdentifier(queue), default: 0] += 1
                try require(queue.places[line] === place, "Q7: a queue in line knows its place")
                try require(
                    all(of: queue.poster).contains { $0 === queue }, "Q7: a queue in line is a poster's")
            }
            try require(places.values.allSatisfy { $0 == 1 }, "Q7: a poster has one place in line")
            try require(
                lines[line].count { $0.queue == nil } == emptyPlaces[line], "Q7: empty places are counted")
            for queue in Array(queues.values) + released.values where places[ObjectIdentifier(queue)] == nil {
                let comesLater =
                    still[queue.poster] != nil
                    || released[queue.poster] === queue && queues[queue.poster]?.isEmpty(style) == false
                try require(
                    queue.places[line] == nil && (queue.isEmpty(style) || comesLater),
                    "Q7: \(queue.poster), which waits, is in line")
            }
        }
    }

    private mutating func forgetIfEmpty(_ queue: PostingQueue) {
        guard queue.count == 0 else { return }
        for line in lines.indices { giveUpPlace(of: queue, in: line) }
        let poster = queue.poster
        if queues[poster] === queue { queues[poster] = nil }
        if untilExit[poster] === queue { untilExit[poster] = nil }
        if released[poster] === queue { released[poster] = nil }
    }
}
