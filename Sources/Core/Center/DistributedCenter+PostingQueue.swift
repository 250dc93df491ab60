// SPDX-License-Identifier: Apache-2.0
/// Posts that wait in their poster's queue (Q7): asap before when-idle, and coalescing among the posts of one poster.
///
/// The order of one poster's posts (D4) is the order in which they leave the queue. A post without a style goes out at
/// once, ahead of the poster's queued posts, as a queued post is meant for later. Queued posts are ordered by style,
/// then by arrival. A post that coalesces goes to the tail. An at-exit post (R4) becomes an asap post when its poster
/// leaves the bus.
extension DistributedCenter {
    /// Whether posts of a style wait for this process. The driver decides when to post them, as it knows when it is
    /// idle.
    public func hasQueuedPosts(_ style: PostingStyle) -> Bool {
        postingQueues.count(style) > 0 && !isEnding
    }

    /// The number of posts in posting queues.
    public var queuedPosts: Int { postingQueues.count }

    /// Counts posts that an earlier process accepted and could not keep.
    public func countLostPosts(_ count: UInt64) {
        counters.lostPosts += count
    }

    /// Posts queued posts, as many as one event may: fewer where many observers match.
    ///
    /// - Parameter limit: the maximum number of posts.
    public func postQueued(_ style: PostingStyle, limit: Int, effects: inout [Effect]) {
        defer { eventEnded() }
        var (hasPosted, matched) = (false, 0)
        // The log has a post as due to its receivers before it has left the posting queue. Both are in one group of
        // records, so that it is in one place after a crash.
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
            // Credited last: a departed payer is forgotten with its last charge, and the post may have become a value.
            giveBack(post.byteCount, of: payer)
            remember(.postTaken(payer.name, style), effects: &effects)
            sendOverfull(effects: &effects)
            hasPosted = true
        }
        if hasPosted, remembersChanges { takeAllTurns(effects: &effects) }
    }

    /// The observers that the posts of one event may match, without those of the last post.
    private static let maxMatched = 1024

    /// Checks whether a post may be queued.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)``.
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

    /// Queues a post that has passed ``checkQueueing(_:from:coalescing:)``.
    func enqueue(
        _ post: PendingPost, from poster: ClientName, coalescing: Set<CoalescingKey>, effects: inout [Effect]
    ) {
        let payer = postingQueues.payer(of: poster) ?? peer(poster)
        counters.coalesced += UInt64(putInQueue(post, of: payer, coalescing: coalescing))
        remember(.postQueued(poster, post, coalescing: coalescing), effects: &effects)
    }

    /// The size of a slice: the maximum number of queued posts or values that one event removes.
    public static let partSize = 2048

    /// Whether a removal in slices is under way, which is logged with its last slice only.
    public var isAnythingInParts: Bool { postingQueues.isAnyFrozen }

    /// Withdraws posts from the queues of a poster, of any style (Q3).
    ///
    /// Called for one slice after the other until none is left. In between the poster's queues are frozen: none of
    /// their posts is posted, and nothing else may be done for the poster.
    ///
    /// - Parameters:
    ///   - name: the name of the posts; empty for any.
    ///   - object: the object of the posts; empty for any.
    ///   - most: the maximum number of posts in a slice.
    /// - Returns: the number of withdrawn posts, and whether more are left.
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

    /// Removes a slice of the posts that a coalescing post replaces, when they are more than one event removes. Call it
    /// before the post until it returns true, without other calls of the same poster in between.
    ///
    /// - Returns: whether ``post(name:object:userInfo:options:from:as:effects:)`` may remove the rest. After false in
    ///   an earlier call, that does not refuse the post.
    /// - Throws: the errors of ``post(name:object:userInfo:options:from:as:effects:)``.
    public func removeCoalesced(
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
        if !postingQueues.isFrozen(poster) {
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

    /// Makes a post that goes out now replace similar posts in its poster's queue (Q2).
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

    // MARK: Accounting

    /// - Returns: the number of similar posts that it replaced.
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

    /// Removes the queued posts that a post with the style `now` replaces.
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

    /// Releases the at-exit posts of a poster that has left.
    ///
    /// - Returns: the number of released posts.
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
