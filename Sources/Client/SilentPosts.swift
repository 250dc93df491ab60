// SPDX-License-Identifier: Apache-2.0

/// The posts in flight that asked for no answer and that no later answer has confirmed. They may be lost when the
/// service or the connection ends (E10). Does no input or output.
struct SilentPosts {
    /// The number of posts without a known outcome.
    private(set) var count = 0
    /// The number of posts that are known to be refused; a later answer confirms them as well.
    private(set) var refused = 0
    /// The number of posts whose confirming answers have failed since the last successful answer.
    private(set) var unanswered = 0
    /// The number of posts of an ended service of which it is unknown whether the service has taken them.
    private(set) var unresolved = 0

    mutating func add(_ added: Int) { count += added }

    /// Removes the last `withdrawn` posts, which ask for an answer after all.
    mutating func withdraw(_ withdrawn: Int) { count = max(0, count - withdrawn) }

    /// Counts posts that the service announces as refused. They are the earliest, because the service announces them
    /// ahead of an answer.
    mutating func refuse(_ announced: Int) {
        let known = min(announced, count)
        count -= known
        refused += known
    }

    /// Counts posts that an ending service announces as refused.
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

    /// Applies the failure of an answer behind `failed` posts: it is unknown which of them were taken.
    mutating func fail(_ failed: Int) { unanswered += failed }

    /// Applies an answer of the service behind all posts.
    mutating func confirmAll() { (count, refused, unanswered) = (0, 0, 0) }

    /// Notes the end of the service or of the connection to it.
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
