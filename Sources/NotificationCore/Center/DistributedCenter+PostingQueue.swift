/// Posts that wait in a queue of their poster (Q7): asap before when-idle, and coalescing among the posts of one poster.
///
/// The order of one poster's posts (D4) is that in which they are posted for real. A post without a style goes out at
/// once, ahead of what its poster has queued, as queueing is asking for later; among queued ones the style counts, then
/// the order of arrival, where a post that coalesces has its place at the tail.
extension DistributedCenter {
    /// Whether posts of a style wait. When they are posted is the driver's to decide, which knows when it is idle.
    public func hasQueuedPosts(_ style: PostingStyle) -> Bool {
        postingQueues.count(style) > 0
    }

    /// How many posts wait in posters' queues.
    public var queuedPosts: Int { postingQueues.count }

    /// So many posts were accepted by an earlier process, which could not keep them.
    public func countLostPosts(_ count: UInt64) {
        counters.lostPosts += count
    }

    /// Posts what waits.
    ///
    /// - Parameter limit: of the posts.
    public func postQueued(_ style: PostingStyle, limit: Int, effects: inout [Effect]) {
        defer { eventEnded() }
        var hasPosted = false
        // For those it goes to it is due and remembered before it counts as taken. The three stand together, so that a
        // crash finds it in one place: in its poster's queue, or due.
        remembersStaged = remembersChanges
        defer { remembersStaged = false }
        for _ in 0..<limit {
            guard case (var post, let payer)? = postingQueues.take(style) else { break }
            giveBack(post.byteCount, of: payer)
            if post.retention != nil {
                do throws(CenterError) {
                    try checkRetaining(post, from: payer.name, effects: &effects)
                } catch {
                    post.retention = nil
                    counters.unretained += 1
                }
            }
            _ = stage(post, from: payer.name, payer: payer, effects: &effects)
            remember(.postTaken(payer.name, style), effects: &effects)
            sendOverfull(effects: &effects)
            hasPosted = true
        }
        if hasPosted, remembersChanges { takeAllTurns(effects: &effects) }
    }

    /// Queues a post.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)``.
    func enqueue(
        _ post: PendingPost, from poster: ClientName, coalescing: Set<CoalescingKey>, effects: inout [Effect]
    ) throws(CenterError) {
        let usage = postingQueues.usage(
            of: poster, name: post.name, object: post.object, coalescing: coalescing)
        let growth = post.byteCount - usage.similar.byteCount
        try limits.check(.queuedPostsPerClient, usage.count - usage.similar.count + 1)
        try limits.check(.queuedPostBytesPerClient, usage.byteCount + growth)
        try checkRoom(
            for: postingQueues.payer(of: poster) ?? peers[poster], .queuedPostBytes, adding: growth)
        counters.coalesced += UInt64(putInQueue(post, of: poster, coalescing: coalescing))
        remember(.postQueued(poster, post, coalescing: coalescing), effects: &effects)
    }

    /// Has a post that goes out now take the place of similar ones in its poster's queue (Q2).
    func replacingQueued(
        _ post: PendingPost, from poster: ClientName, coalescing: Set<CoalescingKey>, effects: inout [Effect]
    ) -> PendingPost {
        let replaced = removeQueued(of: poster, name: post.name, object: post.object, coalescing: coalescing)
        guard !replaced.isEmpty else { return post }
        counters.coalesced += UInt64(replaced.count)
        remember(
            .postsReplaced(poster, name: post.name, object: post.object, coalescing: coalescing), effects: &effects)
        var post = post
        post.takeOver(from: replaced)
        return post
    }

    // MARK: Counting

    /// - Returns: how many similar ones it replaced.
    func putInQueue(_ post: PendingPost, of poster: ClientName, coalescing: Set<CoalescingKey>) -> Int {
        let payer = postingQueues.payer(of: poster) ?? peer(poster)
        let before = postingQueues.byteCount
        let replaced = postingQueues.enqueue(post, from: payer, coalescing: coalescing)
        charge(payer, .queuedPostBytes, postingQueues.byteCount - before)
        return replaced
    }

    func removeQueued(
        of poster: ClientName, name: String, object: String, coalescing: Set<CoalescingKey>
    ) -> [PendingPost] {
        guard let payer = postingQueues.payer(of: poster) else { return [] }
        let before = postingQueues.byteCount
        let removed = postingQueues.removeSimilar(of: poster, name: name, object: object, coalescing: coalescing)
        giveBack(before - postingQueues.byteCount, of: payer)
        return removed
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
