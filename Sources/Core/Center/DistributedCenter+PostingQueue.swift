// SPDX-License-Identifier: Apache-2.0
/// Posts that wait in their poster's queue (Q7): posts with the style `asap`, `when-idle` or `at-exit`.
///
/// A queued post coalesces only with posts of the same poster. It is posted, and gets its serial, when it leaves the
/// queue: that is its place in the order of the poster's posts (D4). Posts of style `now` go out at once, ahead of
/// queued posts. Queued posts are ordered by style, then by arrival; a post that replaces others goes to the tail. An
/// `at-exit` post (R4) becomes an `asap` post when its poster leaves the bus.
extension DistributedCenter {
    /// Whether queued posts of a style wait to be posted by this process. The driver decides when to post them, because
    /// only it knows when the service is idle.
    public func hasQueuedPosts(_ style: PostingStyle) -> Bool {
        postingQueues.count(style) > 0 && !isEnding
    }

    /// The number of posts in the queues of all posters.
    public var queuedPosts: Int { postingQueues.count }

    /// Counts posts that an earlier process accepted and could not save.
    public func countLostPosts(_ count: UInt64) {
        counters.lostPosts += count
    }

    /// Posts queued posts of a style. One event posts fewer than the limit if many observers match.
    ///
    /// - Parameter limit: the maximum number of posts.
    public func postQueued(_ style: PostingStyle, limit: Int, effects: inout [Effect]) {
        defer { eventEnded() }
        var (hasPosted, matched) = (false, 0)
        // Each post is logged as due to its receivers, and then as taken from the posting queue. Both records are
        // written together, so that after a crash the post is in exactly one place.
        remembersScheduled = remembersChanges
        defer { remembersScheduled = false }
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
            matched += matchAndQueue(post, from: payer.name, payer: payer, effects: &effects).matched
            // Credited last: a departed payer is forgotten with its last charge. By now the payer may be charged for
            // the post as a retained value.
            giveBack(post.byteCount, of: payer)
            remember(.postTaken(payer.name, style), effects: &effects)
            sendOverfull(effects: &effects)
            hasPosted = true
        }
        // While the due notifications of a client are in the log, each later one is logged too. They are sent now, so
        // that later posts need no log.
        if hasPosted, remembersChanges { processAllSlots(effects: &effects) }
    }

    /// The number of matching observers after which an event posts no further queued post.
    private static let maxMatched = 1024

    /// Checks whether a post may be queued. Posts that it would replace do not count.
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
        try checkCapacity(
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

    /// The maximum number of queued posts or values that one event removes: the size of a slice (E8).
    public static let sliceSize = 2048

    /// Whether a removal of posts in slices is under way. It is logged only with its last slice, so the log and the
    /// queues differ until then.
    public var isRemovalInSlices: Bool { postingQueues.isAnyFrozen }

    /// Removes a slice of the posts in the queues of a poster, of any style (Q3). Call it until no more are left.
    ///
    /// Between two slices the poster's queues are frozen: none of their posts is posted, and the driver serves no other
    /// call of the poster.
    ///
    /// - Parameters:
    ///   - name: the name of the posts; empty for any.
    ///   - object: the object of the posts; empty for any.
    ///   - most: the maximum number of posts in a slice.
    /// - Returns: the number of posts removed in this slice, and whether more are left.
    public func withdrawPosts(
        of poster: ClientName, name: String, object: String, atMost most: Int = DistributedCenter.sliceSize,
        effects: inout [Effect]
    ) -> (count: Int, isMore: Bool) {
        defer { eventEnded() }
        let part = withdrawQueued(of: poster, name: name, object: object, atMost: most)
        if part.count > 0, !part.isMore {
            remember(.postsWithdrawn(poster, name: name, object: object), effects: &effects)
        }
        return part
    }

    /// Removes a slice of the queued posts that a coalescing post replaces, if they are more than one event may remove.
    /// Call it before ``post(name:object:userInfo:options:from:as:effects:)`` until it returns true, without other
    /// calls of the same poster in between.
    ///
    /// The first call checks the post. After a slice was removed, the post is not refused any more.
    ///
    /// - Returns: whether few enough posts are left for the post itself to remove.
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
            return similar > Self.sliceSize
        }
        guard !options.coalescing.isEmpty, isMore() else { return true }
        if !postingQueues.isFrozen(poster) {
            let post = pending(name, object, userInfo, options, from: poster, as: nil)
            try checkPosting(post, options, from: poster, effects: &effects)
        }
        _ = changeQueues(of: poster) {
            $0.removeSimilar(
                of: poster, name: name, object: object, style: options.postingStyle,
                coalescing: options.coalescing, atMost: Self.sliceSize)
        }
        return false
    }

    /// Lets a post with the style `now` replace similar posts in its poster's queue (Q2). It is delivered immediately
    /// if one of them was to be.
    ///
    /// - Returns: the changed post.
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

    /// Puts a post into its poster's queue, in the place of similar posts, and charges it.
    ///
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

    /// Removes posts from the queues of a poster, without a log entry.
    func withdrawQueued(
        of poster: ClientName, name: String, object: String, atMost most: Int = .max
    ) -> (count: Int, isMore: Bool) {
        changeQueues(of: poster) { $0.withdraw(of: poster, name: name, object: object, atMost: most) } ?? (0, false)
    }

    /// Makes the at-exit posts of a poster that has left ready to be posted.
    ///
    /// - Returns: the number of these posts.
    @discardableResult
    func releaseAtExit(of poster: ClientName) -> Int {
        postingQueues.releaseAtExit(of: poster, now: clock.uptime())
    }

    /// Changes the queues of a poster and credits the freed bytes; nil for a poster without queued posts.
    private func changeQueues<Result>(
        of poster: ClientName, _ change: (inout PostingQueues) -> Result
    ) -> Result? {
        guard let payer = postingQueues.payer(of: poster) else { return nil }
        let before = postingQueues.byteCount
        let result = change(&postingQueues)
        giveBack(before - postingQueues.byteCount, of: payer)
        return result
    }

    /// Removes the first queued post of a style, which an earlier process has posted (E3).
    func takeQueued(_ style: PostingStyle, of poster: ClientName) -> Bool {
        guard let payer = postingQueues.payer(of: poster), let post = postingQueues.take(style, of: poster) else {
            return false
        }
        giveBack(post.byteCount, of: payer)
        return true
    }

    /// Credits queued posts. A poster that uses nothing else is forgotten.
    private func giveBack(_ byteCount: Int, of payer: Peer) {
        charge(payer, .queuedPostBytes, -byteCount)
        forgetIfUnused(payer)
    }
}
