// SPDX-License-Identifier: Apache-2.0
/// Finds a short list of steps that still fails, by leaving out ever smaller parts of it.
struct Shrinker {
    struct Result: Equatable {
        /// What is left, in its order.
        var kept: [Int]
        /// How many lists were tried.
        var tries = 0
        /// Whether it was tried to leave out each single one of what is left.
        var isShortest = false
    }

    /// Lists that are tried.
    var maxTries = 400

    /// - Parameters:
    ///   - steps: all together they fail.
    ///   - fails: whether some of them do.
    func shrink(_ steps: [Int], fails: ([Int]) -> Bool) -> Result {
        var result = Result(kept: steps)
        var size = max(1, steps.count / 2)
        while result.tries < maxTries {
            var start = 0
            var hasShrunk = false
            while start < result.kept.count, result.tries < maxTries {
                let end = min(result.kept.count, start + size)
                let candidate = Array(result.kept[..<start] + result.kept[end...])
                result.tries += 1
                if fails(candidate) {
                    result.kept = candidate
                    hasShrunk = true
                } else {
                    start += size
                }
            }
            if size > 1 {
                size = (size + 1) / 2
            } else if !hasShrunk {
                // Only a pass that came to its end has tried them all.
                result.isShortest = start >= result.kept.count
                break
            }
        }
        return result
    }
}
