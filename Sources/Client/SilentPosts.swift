// SPDX-License-Identifier: Apache-2.0

/// Posts that have left without a wish for an answer, and that no later answer has confirmed: those that may be lost when the
/// service ends, or the connection (E10). No input and output; times are those of one clock, in nanoseconds.
struct SilentPosts {
    /// A service that owes no answer, and that did not end within so long, has taken what was sent to it.
    static let age: Int64 = 30_000_000_000

    private(set) var count = 0
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

    mutating func remove(_ removed: Int) { count = max(0, count - removed) }

    /// The service has ended, or the connection to it.
    ///
    /// - Parameter owesAnswers: whether it has not answered something.
    /// - Returns: how many may be lost.
    mutating func end(owesAnswers: Bool, at now: Int64) -> Int {
        let young = now - begin < Self.age ? recent + earlier : now - begin < 2 * Self.age ? recent : 0
        defer { self = SilentPosts() }
        return owesAnswers ? count : min(count, young)
    }
}
