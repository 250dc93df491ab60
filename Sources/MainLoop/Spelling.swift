// SPDX-License-Identifier: Apache-2.0

/// The correction of mistyped words.
package enum Spelling {
    /// Returns the word with the fewest edits from `word`; nil when each needs more edits than a typing mistake has.
    ///
    /// An edit inserts, removes or replaces a character, or exchanges two adjacent characters. A third of the
    /// characters may be wrong, and at least one. A word that begins with all of `word` counts as one edit away, if
    /// `word` has three characters or more. Of equally close words the first is returned.
    package static func closest(to word: String, among words: [String]) -> String? {
        let most = max(1, word.count / 3)
        var best: (word: String, edits: Int)?
        for candidate in words where candidate != word {
            let isBeginning = word.count >= 3 && candidate.hasPrefix(word)
            guard isBeginning || abs(candidate.count - word.count) <= most else { continue }
            let edits = isBeginning ? 1 : edits(from: Array(word), to: Array(candidate))
            if edits <= most, edits < best?.edits ?? .max { best = (candidate, edits) }
        }
        return best?.word
    }

    /// The optimal string alignment distance.
    private static func edits(from old: [Character], to new: [Character]) -> Int {
        var (before, last) = ([Int](), Array(0...new.count))
        for (row, character) in old.enumerated() {
            var next = [row + 1]
            for (column, other) in new.enumerated() {
                var edits = min(last[column] + (character == other ? 0 : 1), last[column + 1] + 1, next[column] + 1)
                if row > 0, column > 0, character == new[column - 1], old[row - 1] == other {
                    edits = min(edits, before[column - 1] + 1)
                }
                next.append(edits)
            }
            (before, last) = (last, next)
        }
        return last[new.count]
    }
}
