// SPDX-License-Identifier: Apache-2.0

/// The counts of **silent posts**: sent posts that ask for no answer of their own. Each is *unconfirmed* until a later
/// answer confirms it, or the service announces it as refused. If the service or the connection ends before that, it is
/// *unresolved* and may be lost (E10).
///
/// ``Outbox`` keeps the counts for posts on the bus. A plain value without input and output.
struct SilentPosts {
    /// The number of unconfirmed posts, without posts that are known to be refused.
    private(set) var count = 0
    /// The number of posts that the service announced as refused. The next answer covers them as well, so it confirms
    /// fewer of the others.
    private(set) var refused = 0
    /// The number of unconfirmed posts whose confirming answers have failed. The next successful answer confirms them.
    private(set) var unanswered = 0
    /// The number of posts to an ended service whose outcome is unknown.
    private(set) var unresolved = 0

    /// Counts silent posts that have been sent.
    mutating func add(_ added: Int) { count += added }

    /// Removes the last `withdrawn` posts from the counts, because they ask for an answer after all.
    mutating func withdraw(_ withdrawn: Int) { count = max(0, count - withdrawn) }

    /// Counts posts that the service announces as refused. They belong to the posts that the next answer covers,
    /// because the service sends the announcement ahead of that answer.
    mutating func refuse(_ announced: Int) {
        let known = min(announced, count)
        count -= known
        refused += known
    }

    /// Counts posts that an ending service announces as refused: they are no longer unresolved.
    mutating func refuseUnresolved(_ announced: Int) { unresolved = max(0, unresolved - announced) }

    /// Applies an answer behind `confirmed` posts. The service answers in order, so the answer also confirms posts
    /// whose answers failed.
    mutating func confirm(_ confirmed: Int) {
        let all = confirmed + unanswered
        let known = min(refused, all)
        refused -= known
        count = max(0, count - (all - known))
        unanswered = 0
    }

    /// Applies the failure of an answer behind `failed` posts. They stay unconfirmed.
    mutating func fail(_ failed: Int) { unanswered += failed }

    /// Applies an answer of the service behind all posts.
    mutating func confirmAll() { (count, refused, unanswered) = (0, 0, 0) }

    /// Applies the end of the service or of the connection: the unconfirmed posts become unresolved.
    mutating func serviceEnded() {
        unresolved += count
        confirmAll()
    }

    /// Forgets the posts of the ended service, whose outcome is known now or will never be known.
    ///
    /// - Returns: the number of these posts.
    mutating func resolve() -> Int {
        defer { unresolved = 0 }
        return unresolved
    }
}
