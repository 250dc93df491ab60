// SPDX-License-Identifier: Apache-2.0

/// Suggestions for mistyped options, subcommands and configuration keys, shown as "did you mean …".
package enum Spelling {
    /// Returns the entry of `words` with the smallest edit distance from `word`; nil when none is close enough.
    ///
    /// An edit inserts, removes or replaces a character, or exchanges two adjacent characters. The limit is a third of
    /// the characters of `word`, and at least one edit. If `word` has three characters or more, an entry that begins
    /// with `word` counts as one edit away. Of equally close entries the first is returned.
    package static func closest(to word: String, among words: [String]) -> String? {
        let maxEdits = max(1, word.count / 3)
        var best: (word: String, edits: Int)?
        for candidate in words where candidate != word {
            let isBeginning = word.count >= 3 && candidate.hasPrefix(word)
            guard isBeginning || abs(candidate.count - word.count) <= maxEdits else { continue }
            let edits = isBeginning ? 1 : edits(from: Array(word), to: Array(candidate))
            if edits <= maxEdits, edits < best?.edits ?? .max { best = (candidate, edits) }
        }
        return best?.word
    }

    /// Returns the optimal string alignment distance, computed row by row; `last` and `before` are the two rows above.
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
