// SPDX-License-Identifier: Apache-2.0

/// The posts on their way that asked for no answer, and that no later answer has confirmed: those that may be lost when the
/// service ends, or the connection (E10). No input and output.
struct SilentPosts {
    /// Those of which nothing is known.
    private(set) var count = 0
    /// Those that are known to have been refused: an answer behind them confirms them as well.
    private(set) var refused = 0
    /// Those that answers would have confirmed which have failed since the last one came.
    private(set) var unanswered = 0
    /// Those of a service that has ended, as long as it is not known whether it has taken them.
    private(set) var unresolved = 0

    mutating func add(_ added: Int) { count += added }

    /// The last of them have asked for an answer after all.
    mutating func withdraw(_ withdrawn: Int) { count = max(0, count - withdrawn) }

    /// The service announces that it has refused posts: of the earliest, as it does so ahead of an answer.
    mutating func refuse(_ announced: Int) {
        let known = min(announced, count)
        count -= known
        refused += known
    }

    /// A service that is ending announces the same.
    mutating func refuseUnresolved(_ announced: Int) { unresolved = max(0, unresolved - announced) }

    /// An answer has come behind so many of them. The service answers in order: also what failed answers would have confirmed.
    mutating func confirm(_ confirmed: Int) {
        let all = confirmed + unanswered
        let known = min(refused, all)
        refused -= known
        count = max(0, count - (all - known))
        unanswered = 0
    }

    /// The answer behind so many of them has failed: it is not known which were taken.
    mutating func fail(_ failed: Int) { unanswered += failed }

    /// The service has answered behind all of them.
    mutating func confirmAll() { (count, refused, unanswered) = (0, 0, 0) }

    /// The service has ended, or the connection to it.
    mutating func serviceEnded() {
        unresolved += count
        confirmAll()
    }

    /// It is known, or will never be, what became of those of the service that has ended.
    ///
    /// - Returns: how many they were.
    mutating func resolve() -> Int {
        defer { unresolved = 0 }
        return unresolved
    }
}
