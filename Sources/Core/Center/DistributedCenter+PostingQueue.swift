// SPDX-License-Identifier: Apache-2.0
/// Posts that wait in a queue of their poster (Q7): asap before when-idle, and coalescing among the posts of one poster.
///
/// The order of one poster's posts (D4) is that in which they are posted for real. A post without a style goes out at
/// once, ahead of what its poster has queued, as queueing is asking for later; among queued ones the style counts, then
/// the order of arrival, where a post that coalesces has its place at the tail. What waits for its poster's exit (R4) is
/// asked for as soon as possible when that leaves the bus.
extension DistributedCenter {
    /// Whether posts of a style wait, and not for a later process. When they are posted is the driver's to decide, which knows when it is idle.
    public func hasQueuedPosts(_ style: PostingStyle) -> Bool {
        postingQueues.count(style) > 0 && !isEnding
    }

    /// How many posts wait in posters' queues.
    public var queuedPosts: Int { postingQueues.count }

    /// So many posts were accepted by an earlier process, which could not keep them.
    public func countLostPosts(_ count: UInt64) {
        counters.lostPosts += count
    }

    /// Posts what waits, as much as one event may: fewer posts where many observers match them.
    ///
    /// - Parameter limit: of the posts.
    public func postQueued(_ style: PostingStyle, limit: Int, effects: inout [Effect]) {
        defer { eventEnded() }
        var (hasPosted, matched) = (false, 0)
        // For those it goes to it is due and remembered before it counts as taken. The three stand together, so that a
        // crash finds it in one place: in its poster's queue, or due.
        remembersStaged = remembersChanges
        defer { remembersStaged = false }
        for _ in 0..<limit {
            guard matched < Self.maxMatched, case (var post, let payer)? = postingQueues.take(style) else { break }
            meter.count()
            if post.retention != nil {
                do throws(CenterError) {
                    try checkRetaining(post, from: payer, effects: &effects)
                } catch {
                    post.retention = nil
                    counters.unretained += 1
                }
            }
            matched += stage(post, from: payer.name, payer: payer, effects: &effects).matched
            // Behind that: who has left is forgotten with the last that it pays for, and the post may have become a value.
            giveBack(post.byteCount, of: payer)
            remember(.postTaken(payer.name, style), effects: &effects)
            sendOverfull(effects: &effects)
            hasPosted = true
        }
        if hasPosted, remembersChanges { takeAllTurns(effects: &effects) }
    }

    /// Observers that the posts of one event match, but for those of the last one.
    private static let maxMatched = 1024

    /// Whether a post may be queued.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)``.
    func checkQueueing(
        _ post: PendingPost, from poster: ClientName, coalescing: Set<CoalescingKey>
    ) throws(CenterError) {
        let usage = postingQueues.usage(
            of: poster, name: post.name, object: post.object, style: post.style, coalescing: coalescing)
        let growth = post.byteCount - usage.similar.byteCount
        try limits.check(.queuedPostsPerClient, usage.count - usage.similar.count + 1)
        try limits.check(.queuedPostBytesPerClient, usage.byteCount + growth)
        try checkRoom(
            for: postingQueues.payer(of: poster) ?? peers[poster], .queuedPostBytes, adding: growth)
    }

    /// Queues a post that ``checkQueueing(_:from:coalescing:)`` has let through.
    func enqueue(
        _ post: PendingPost, from poster: ClientName, coalescing: Set<CoalescingKey>, effects: inout [Effect]
    ) {
        let payer = postingQueues.payer(of: poster) ?? peer(poster)
        counters.coalesced += UInt64(putInQueue(post, of: payer, coalescing: coalescing))
        remember(.postQueued(poster, post, coalescing: coalescing), effects: &effects)
    }

    /// As much as one event does of what is done in parts: so many posts are taken out of queues, or values removed.
    public static let partSize = 2048

    /// Whether something is being done in parts of which nothing is remembered before the last.
    public var isAnythingInParts: Bool { postingQueues.isAnyStill }

    /// Takes posts of a client out of its queue, whenever they were to be posted (Q3).
    ///
    /// In parts, until it returns that there are no more; between them nothing of that queue is posted, and nothing else may
    /// be done for its poster.
    ///
    /// - Parameters:
    ///   - name: empty for any.
    ///   - object: empty for any.
    ///   - most: of a part.
    /// - Returns: how many, and whether there are more.
    public func withdrawPosts(
        of poster: ClientName, name: String, object: String, atMost most: Int = DistributedCenter.partSize,
        effects: inout [Effect]
    ) -> (count: Int, isMore: Bool) {
        defer { eventEnded() }
        let part = withdrawQueued(of: poster, name: name, object: object, atMost: most)
        if part.count > 0, !part.isMore {
            remember(.postsWithdrawn(poster, name: name, object: object), effects: &effects)
        }
        return part
    }

    /// Takes out some of the posts whose place one takes that coalesces, when they are more than one event takes out. To be
    /// called before that is posted, until it returns true, with nothing between of the same poster.
    ///
    /// - Returns: whether ``post(name:object:userInfo:options:from:as:effects:)`` may take the rest. It refuses nothing then.
    /// - Throws: what that throws.
    public func makeWay(
        name: String, object: String, userInfo: any UserInfo, options: PostOptions, from poster: ClientName,
        effects: inout [Effect]
    ) throws(CenterError) -> Bool {
        defer { eventEnded() }
        func isMore() -> Bool {
            let similar = postingQueues.usage(
                of: poster, name: name, object: object, style: options.postingStyle, coalescing: options.coalescing
            ).similar.count
            return similar > Self.partSize
        }
        guard !options.coalescing.isEmpty, isMore() else { return true }
        if !postingQueues.isStill(poster) {
            let post = pending(name, object, userInfo, options, from: poster, as: nil)
            try checkPosting(post, options, from: poster, effects: &effects)
        }
        _ = changeQueues(of: poster) {
            $0.removeSimilar(
                of: poster, name: name, object: object, style: options.postingStyle,
                coalescing: options.coalescing, atMost: Self.partSize)
        }
        return false
    }

    /// Has a post that goes out now take the place of similar ones in its poster's queue (Q2).
    func replacingQueued(
        _ post: PendingPost, from poster: ClientName, coalescing: Set<CoalescingKey>, effects: inout [Effect]
    ) -> PendingPost {
        let replaced = removeQueued(of: poster, similarTo: post.name, post.object, coalescing: coalescing)
        guard replaced.count > 0 else { return post }
        counters.coalesced += UInt64(replaced.count)
        remember(
            .postsReplaced(poster, name: post.name, object: post.object, coalescing: coalescing), effects: &effects)
        var post = post
        post.takeOver(from: replaced)
        return post
    }

    // MARK: Counting

    /// - Returns: how many similar ones it replaced.
    func putInQueue(_ post: PendingPost, of payer: Peer, coalescing: Set<CoalescingKey>) -> Int {
        let before = postingQueues.byteCount
        let replaced = postingQueues.removeSimilar(
            of: payer.name, name: post.name, object: post.object, style: post.style, coalescing: coalescing,
            atMost: .max)
        var post = post
        if let replaced { post.takeOver(from: replaced) }
        postingQueues.append(post, from: payer)
        charge(payer, .queuedPostBytes, postingQueues.byteCount - before)
        return replaced?.count ?? 0
    }

    /// Takes out what a post that is not queued takes the place of.
    func removeQueued(
        of poster: ClientName, similarTo name: String, _ object: String, coalescing: Set<CoalescingKey>
    ) -> PostingQueues.Removed {
        let removed = changeQueues(of: poster) {
            $0.removeSimilar(
                of: poster, name: name, object: object, style: .now, coalescing: coalescing, atMost: .max)
        }
        return (removed ?? nil) ?? PostingQueues.Removed()
    }

    func withdrawQueued(
        of poster: ClientName, name: String, object: String, atMost most: Int = .max
    ) -> (count: Int, isMore: Bool) {
        changeQueues(of: poster) { $0.withdraw(of: poster, name: name, object: object, atMost: most) } ?? (0, false)
    }

    /// The poster has left.
    ///
    /// - Returns: how many posts waited for that.
    @discardableResult
    func releaseAtExit(of poster: ClientName) -> Int {
        postingQueues.releaseAtExit(of: poster, now: clock.uptime())
    }

    private func changeQueues<Result>(
        of poster: ClientName, _ change: (inout PostingQueues) -> Result
    ) -> Result? {
        guard let payer = postingQueues.payer(of: poster) else { return nil }
        let before = postingQueues.byteCount
        let result = change(&postingQueues)
        giveBack(before - postingQueues.byteCount, of: payer)
        return result
    }

    func takeQueued(_ style: PostingStyle, of poster: ClientName) -> Bool {
        guard let payer = postingQueues.payer(of: poster), let post = postingQueues.take(style, of: poster) else {
            return false
        }
        giveBack(post.byteCount, of: payer)
        return true
    }

    private func giveBack(_ byteCount: Int, of payer: Peer) {
        charge(payer, .queuedPostBytes, -byteCount)
        forgetIfUnused(payer)
    }
}
