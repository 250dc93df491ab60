// SPDX-License-Identifier: Apache-2.0

/// Posts that have left without a wish for an answer, and that no later answer has confirmed: those that may be lost when the
/// service ends, or the connection (E10). No input and output; times are those of one clock, in nanoseconds.
struct SilentPosts {
    /// A service that owes no answer, and that did not end within so long, has taken what was sent to it.
    static let age: Int64 = 30_000_000_000

    /// Those of which nothing is known.
    private(set) var count = 0
    /// Those that are known to have been refused: an answer behind them confirms them as well.
    private(set) var refused = 0
    /// Those that answers would have confirmed which have failed since the last one came, and whether any has.
    private var unanswered = 0
    private var hasFailed = false
    /// How many have left since a moment, and in the same time before: whether the last ones are young is known without a time
    /// for each.
    private var recent = 0
    private var earlier = 0
    private var begin: Int64 = .min / 2

    mutating func add(_ added: Int, at now: Int64) {
        count += added
        if now - begin >= Self.age {
            earlier = now - begin < 2 * Self.age ? recent : 0
            (recent, begin) = (0, now)
        }
        recent += added
    }

    /// The last of them have asked for an answer after all.
    mutating func withdraw(_ withdrawn: Int) { count = max(0, count - withdrawn) }

    /// The service has told of posts that it has refused: of the earliest, as it does so ahead of an answer.
    mutating func refuse(_ told: Int) {
        let known = min(told, count)
        count -= known
        refused += known
    }

    /// An answer has come behind so many of them. The service answers in order: also what failed answers would have confirmed.
    mutating func confirm(_ confirmed: Int) {
        let all = confirmed + unanswered
        let known = min(refused, all)
        refused -= known
        count = max(0, count - (all - known))
        (unanswered, hasFailed) = (0, false)
    }

    /// The answer behind so many of them has failed: it is not known which were taken.
    mutating func fail(_ failed: Int) {
        unanswered += failed
        hasFailed = true
    }

    /// The service has ended, or the connection to it.
    ///
    /// - Parameter unconfirmed: all requests on their way. Where there are others than these, an answer is owed.
    /// - Returns: how many may be lost.
    mutating func end(unconfirmed: Int, at now: Int64) -> Int {
        let young = now - begin < Self.age ? recent + earlier : now - begin < 2 * Self.age ? recent : 0
        defer { self = SilentPosts() }
        return hasFailed || unconfirmed > count + refused ? count : min(count, young)
    }
}
