// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The queues of all posters' posts that wait for their posting style (Q7). ``DistributedCenter`` appends posts, and
/// takes the next one when the driver asks for posts of a style.
///
/// Posters are served round-robin for each style, so that a long queue of one delays no other. A poster that has left
/// the bus keeps its queue until it is empty, because accepted posts are posted.
///
/// Posts with the style `at-exit` (R4) are in a queue of their own, which is not served before their poster leaves.
/// From then on they are due as soon as possible, behind the other `asap` posts of the poster.
///
/// A removal of many posts is done in slices, with other events in between. Until the last slice the queues of the
/// poster are **frozen**: none of its posts is posted. Otherwise a post could be posted although it is to be replaced
/// or withdrawn.
struct PostingQueues {
    /// The posts that a coalescing post replaces and that were removed so far: their number, and the properties that
    /// the new post takes over from them (Q3).
    struct Removed {
        fileprivate(set) var count = 0
        /// The most urgent style of the removed posts.
        fileprivate(set) var style = PostingStyle.atExit
        /// Whether any of the removed posts had immediate delivery.
        fileprivate(set) var deliverImmediately = false

        /// Counts a removed post.
        fileprivate mutating func note(_ post: PendingPost) {
            count += 1
            style = min(style, post.style)
            deliverImmediately = deliverImmediately || post.deliverImmediately
        }
    }

    private let meter: StepMeter
    /// The queues of posters, without at-exit posts.
    private var queues: [ClientName: PostingQueue] = [:]
    /// The at-exit posts of posters that are on the bus.
    private var atExitQueues: [ClientName: PostingQueue] = [:]
    /// The at-exit posts of posters that have left. They are due as `asap` posts.
    private var released: [ClientName: PostingQueue] = [:]
    /// The posters whose queues are frozen, with the posts that were removed so far.
    private var frozen: [ClientName: Removed] = [:]
    /// The round-robin of each style, by ``PostingStyle/order``. A queue with a post of the style has one place in it,
    /// unless it is frozen. A `line` in this file is the index of a style.
    private var rotations = PostingStyle.allCases.map { _ in Deque<PostingQueue.Place>() }
    /// The number of places in each round-robin that queues have given up, by ``PostingStyle/order``.
    private var emptyPlaces = PostingStyle.allCases.map { _ in 0 }
    /// The position of the last queued post or departure.
    private var lastNumber: UInt64 = 0
    /// The number of all queued posts, and their size in bytes.
    private(set) var count = 0
    private(set) var byteCount = 0
    /// The number of posts that may be posted, by ``PostingStyle/order``: without frozen queues.
    private var counts = SIMD4<Int>()

    /// Releases memory that departed posters have left unused (E8).
    mutating func releaseMemory() {
        queues.releaseMemory()
        atExitQueues.releaseMemory()
        released.releaseMemory()
        frozen.releaseMemory()
    }

    init(meter: StepMeter) {
        self.meter = meter
    }

    /// The number of queued posts of a style that may be posted.
    func count(_ style: PostingStyle) -> Int { counts[style.order] }

    /// Whether any poster's queues are frozen.
    var isAnyFrozen: Bool { !frozen.isEmpty }

    /// Whether the queues of a poster are frozen.
    func isFrozen(_ poster: ClientName) -> Bool { isAnyFrozen && frozen[poster] != nil }

    /// The queues of all posters.
    private var all: [PostingQueue] { Array(queues.values) + atExitQueues.values + released.values }

    /// The queues of a poster, of which it may have three.
    private func all(of poster: ClientName) -> [PostingQueue] {
        [queues[poster], atExitQueues[poster], released[poster]].compactMap(\.self)
    }

    /// The number of slots for which the queues have memory, for inspection.
    var capacity: Int { all.reduce(0) { $0 + $1.capacity } }

    /// The peers that are charged for the queued posts.
    var payers: [Peer] { all.map(\.payer) }

    /// The peer that is charged for the queued posts of a poster; nil when it has none.
    func payer(of poster: ClientName) -> Peer? { (queues[poster] ?? atExitQueues[poster] ?? released[poster])?.payer }

    /// The posters on the bus with at-exit posts.
    var postersUntilExit: [ClientName] { Array(atExitQueues.keys) }

    /// The queues of a poster in which a post of a style replaces similar ones. An at-exit post replaces only other
    /// at-exit posts. A post that is due while its poster is on the bus must not wait for the exit.
    private func queues(of poster: ClientName, similarTo style: PostingStyle) -> [PostingQueue] {
        (style == .atExit ? [atExitQueues[poster]] : [queues[poster], released[poster], atExitQueues[poster]])
            .compactMap(\.self)
    }

    /// Returns the number and size of a poster's queued posts. `similar` is the part that a post with this name, object
    /// and style would replace.
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

    /// The posts of one poster and style at one moment.
    struct Snapshot {
        let poster: ClientName
        /// The posts in their order.
        let all: AnySequence<PendingPost>
    }

    /// All queued posts, for the recovery log: style by style, and the posters of a style in the order of their first
    /// posts.
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

    /// The number of posts with a name and an object, by style. Styles without posts are left out.
    func counts(name: String, object: String) -> [PostingStyle: Int] {
        meter.count(queues.count + atExitQueues.count + released.count)
        let counts = all.reduce(into: SIMD4<Int>()) { $0 &+= $1.counts(name: name, object: object) }
        return PostingStyle.allCases.reduce(into: [:]) { if counts[$1.order] > 0 { $0[$1] = counts[$1.order] } }
    }

    /// Puts a post at the tail of its poster's queue.
    ///
    /// - Parameter payer: the connection of the poster, which is charged for a new queue.
    mutating func append(_ post: PendingPost, from payer: Peer) {
        let poster = payer.name
        let waitsForExit = post.style == .atExit
        if !waitsForExit { mergeReleased(of: poster) }
        let queue = (waitsForExit ? atExitQueues[poster] : queues[poster]) ?? PostingQueue(payer: payer, meter: meter)
        if waitsForExit { atExitQueues[poster] = queue } else { queues[poster] = queue }
        put(post, into: queue)
        if !waitsForExit { addToRotation(queue, post.style) }
    }

    /// Appends a post to a queue, with the next position.
    private mutating func put(_ post: PendingPost, into queue: PostingQueue) {
        lastNumber += 1
        let number = lastNumber
        changing(queue) { queue.append(post, number: number) }
    }

    /// Gives a queue a place in the round-robin of a style. It needs a post of the style, and must neither be frozen
    /// nor have a place.
    private mutating func addToRotation(_ queue: PostingQueue, _ style: PostingStyle) {
        guard queue.places[style.order] == nil, !queue.isEmpty(style), frozen[queue.poster] == nil else { return }
        let place = PostingQueue.Place(queue)
        queue.places[style.order] = place
        rotations[style.order].append(place)
    }

    /// Removes a slice of the posts that a post with this name, object and style replaces. Until the last slice the
    /// poster is frozen.
    ///
    /// - Parameter most: the maximum number of posts in the slice.
    /// - Returns: the posts that were removed in all slices; nil when more are left.
    mutating func removeSimilar(
        of poster: ClientName, name: String, object: String, style: PostingStyle, coalescing: Set<CoalescingKey>,
        atMost most: Int
    ) -> Removed? {
        guard !coalescing.isEmpty else { return Removed() }
        var (removed, left) = (frozen[poster] ?? Removed(), most)
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
        setFrozen(poster, isMore ? removed : nil)
        return isMore ? nil : removed
    }

    /// Removes a slice of the posts with this name and object; an empty string means any. Until the last slice the
    /// poster is frozen.
    ///
    /// - Parameter most: the maximum number of posts in the slice.
    /// - Returns: the number of posts removed in this slice, and whether more are left.
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
        setFrozen(poster, isMore ? Removed() : nil)
        return (count, isMore)
    }

    /// Freezes the queues of a poster, or ends that.
    ///
    /// - Parameter removed: the posts that were removed so far; nil ends the freeze.
    private mutating func setFrozen(_ poster: ClientName, _ removed: Removed?) {
        guard frozen[poster] != nil || removed != nil else { return }
        let wasFrozen = frozen[poster] != nil
        frozen[poster] = removed
        guard wasFrozen != (removed != nil) else { return }
        for queue in all(of: poster) {
            if wasFrozen { counts &+= queue.counts } else { counts &-= queue.counts }
            // At the end of a freeze the queues get their places back. Released posts wait for the other `asap` posts
            // of the poster.
            guard wasFrozen, queue !== atExitQueues[poster] else { continue }
            let comesLater = queue === released[poster] && queues[poster]?.isEmpty(.asap) == false
            for style in PostingStyle.allCases where !(comesLater && style == .asap) { addToRotation(queue, style) }
        }
    }

    /// Makes the at-exit posts of a poster that has left due as soon as possible, behind its other `asap` posts.
    ///
    /// - Parameter now: ``Clock/uptime``, from which `expires-after` counts.
    /// - Returns: the number of these posts.
    mutating func releaseAtExit(of poster: ClientName, now: Int64) -> Int {
        // Calls of the poster precede its departure, so that all slices of its removals should be done. A freeze that
        // is left ends here, since nothing would end it later.
        setFrozen(poster, nil)
        guard let queue = atExitQueues.removeValue(forKey: poster) else { return 0 }
        mergeReleased(of: poster)
        let count = queue.count
        released[poster] = queue
        lastNumber += 1
        let number = lastNumber
        changing(queue) { queue.release(now: now, number: number) }
        if let other = queues[poster] {
            if other.isEmpty(.asap) { handOverPlace(of: other, to: queue) }
        } else {
            addToRotation(queue, .asap)
        }
        return count
    }

    /// Moves the released posts of a poster to its other queue, if the poster returns after its departure. No real bus
    /// reuses a unique name. The released posts come before posts that are queued now.
    private mutating func mergeReleased(of poster: ClientName) {
        guard let rest = released.removeValue(forKey: poster) else { return }
        let queue = queues[poster] ?? PostingQueue(payer: rest.payer, meter: meter)
        queues[poster] = queue
        handOverPlace(of: rest, to: queue)
        while let post = changing(rest, { rest.popFirst(.asap) }) {
            put(post, into: queue)
        }
    }

    /// Gives one queue the place of another queue of the same poster in the round-robin of `asap`, unless it has one.
    private mutating func handOverPlace(of queue: PostingQueue, to other: PostingQueue) {
        let line = PostingStyle.asap.order
        guard other.places[line] == nil else { return giveUpPlace(of: queue, in: line) }
        guard let place = queue.places[line].take() else { return addToRotation(other, .asap) }
        place.queue = other
        other.places[line] = place
    }

    /// Takes a queue out of the round-robin of a style. Its place stays there without a queue until it is reached or
    /// compacted.
    ///
    /// - Parameter line: the style, by ``PostingStyle/order``.
    private mutating func giveUpPlace(of queue: PostingQueue, in line: Int) {
        guard let place = queue.places[line].take() else { return }
        place.queue = nil
        emptyPlaces[line] += 1
        // The round-robin is compacted when most places are empty. Amortized, each place is visited once more.
        guard emptyPlaces[line] > Self.maxEmptyPlaces, emptyPlaces[line] > rotations[line].count / 2 else { return }
        meter.count(rotations[line].count)
        rotations[line].removeAll { $0.queue == nil }
        emptyPlaces[line] = 0
    }

    /// The number of empty places up to which a round-robin is not compacted.
    private static let maxEmptyPlaces = 16

    /// Takes the first post of a style from the poster that is next in the round-robin. The poster goes to the end of
    /// it.
    mutating func take(_ style: PostingStyle) -> (post: PendingPost, payer: Peer)? {
        let line = style.order
        while let place = rotations[line].popFirst() {
            guard let queue = place.queue else {
                meter.count()
                emptyPlaces[line] -= 1
                continue
            }
            queue.places[line] = nil
            // A frozen queue gives up its place. The end of the freeze gives it another one.
            guard frozen[queue.poster] == nil else { continue }
            let post = changing(queue) { queue.popFirst(style) }
            addToRotation(queue, style)
            if let post { return (post, queue.payer) }
        }
        return nil
    }

    /// Takes the first post of a style of one poster, as an earlier process did: the recovery log names the poster. The
    /// place of the poster in the round-robin is used up in the same way.
    ///
    /// - Returns: nil when no such post is queued.
    mutating func take(_ style: PostingStyle, of poster: ClientName) -> PendingPost? {
        let own = [queues[poster], released[poster]].compactMap(\.self)
        guard let queue = own.first(where: { !$0.isEmpty(style) }) else { return nil }
        let first = rotations[style.order].first { $0.queue?.isEmpty(style) == false }
        if first?.queue === queue { return take(style)?.post }
        // Another poster is next. The recovery log was rewritten since that process took the post, and does not record
        // the round-robin.
        return changing(queue) { queue.popFirst(style) }
    }

    /// Applies a change to a queue, and updates the totals. Every change goes through this function.
    @discardableResult
    private mutating func changing<Result>(_ queue: PostingQueue, _ change: () -> Result) -> Result {
        let before = (count: queue.count, byteCount: queue.byteCount, counts: queue.counts)
        let result = change()
        count += queue.count - before.count
        byteCount += queue.byteCount - before.byteCount
        if frozen[queue.poster] == nil { counts &+= queue.counts &- before.counts }
        invariant(
            count >= 0 && byteCount >= 0 && (count == 0) == (byteCount == 0) && counts[PostingStyle.now.order] == 0
                && (counts.wrappedSum() == count || isAnyFrozen), "Q7: the totals of queued posts are their sums")
        // When the last other `asap` post of a poster is gone, its released posts get the place in the round-robin.
        if let rest = released[queue.poster], rest !== queue, atExitQueues[queue.poster] !== queue,
            queues[queue.poster]?.isEmpty(.asap) != false
        {
            handOverPlace(of: queue, to: rest)
        }
        forgetIfEmpty(queue)
        return result
    }

    /// Checks all conditions that hold between two events, in debug builds and the simulation.
    func checkInvariants() throws(BrokenInvariant) {
        var sum = (count: 0, byteCount: 0, counts: SIMD4<Int>())
        for (poster, queue) in Array(queues) + Array(atExitQueues) + Array(released) {
            try require(poster == queue.poster && queue.count > 0, "Q7: no queue is empty")
            try require(
                queue.isEmpty(.atExit) == (atExitQueues[poster] !== queue),
                "R4: at-exit posts are in a queue of their own"
            )
            try queue.checkInvariants(lastNumber: lastNumber)
            sum.count += queue.count
            sum.byteCount += queue.byteCount
            if frozen[poster] == nil { sum.counts &+= queue.counts }
        }
        try require(
            sum == (count, byteCount, counts), "Q7: the totals of queued posts are their sums")
        try require(frozen.keys.allSatisfy { !all(of: $0).isEmpty }, "Q3: a frozen poster has queued posts")
        for (line, style) in PostingStyle.allCases.enumerated() {
            var places: [ObjectIdentifier: Int] = [:]
            for case let (place, queue?) in rotations[line].map({ ($0, $0.queue) }) {
                places[ObjectIdentifier(queue), default: 0] += 1
                try require(queue.places[line] === place, "Q7: a queue in a round-robin refers to its place")
                try require(
                    all(of: queue.poster).contains { $0 === queue },
                    "Q7: a queue in a round-robin belongs to its poster")
            }
            try require(places.values.allSatisfy { $0 == 1 }, "Q7: a queue has one place in a round-robin")
            try require(
                rotations[line].count { $0.queue == nil } == emptyPlaces[line], "Q7: empty places are counted")
            for queue in Array(queues.values) + released.values where places[ObjectIdentifier(queue)] == nil {
                let comesLater =
                    frozen[queue.poster] != nil
                    || released[queue.poster] === queue && queues[queue.poster]?.isEmpty(style) == false
                try require(
                    queue.places[line] == nil && (queue.isEmpty(style) || comesLater),
                    "Q7: the waiting queue of \(queue.poster) is in the round-robin")
            }
        }
    }

    /// Removes a queue without posts, and its places.
    private mutating func forgetIfEmpty(_ queue: PostingQueue) {
        guard queue.count == 0 else { return }
        for line in rotations.indices { giveUpPlace(of: queue, in: line) }
        let poster = queue.poster
        if queues[poster] === queue { queues[poster] = nil }
        if atExitQueues[poster] === queue { atExitQueues[poster] = nil }
        if released[poster] === queue { released[poster] = nil }
    }
}
