// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The splitting of a line into words, as a shell does it, for `carillon post --lines`. Blanks separate words. Quotes
/// and backslashes make blanks parts of a word, and are removed.
///
/// No other syntax of shells is supported: no variables, no comments, no patterns.
enum ShellWords {
    /// - Throws: an error for a quote without its end, and for a backslash at the end.
    static func split(_ line: String) throws(UsageError) -> [String] {
        var words: [String] = []
        var word: String?
        var quote: Character?
        var rest = line[...]
        while let character = rest.popFirst() {
            switch (character, quote) {
            case ("'", "'"?), ("\"", "\""?): quote = nil
            case ("\\", nil):
                guard let next = rest.popFirst() else { throw UsageError("the line ends with a backslash") }
                word = (word ?? "") + String(next)
            // In double quotes a backslash is an ordinary character, except before a quote or another backslash.
            case ("\\", "\""?) where rest.first == "\"" || rest.first == "\\":
                word = (word ?? "") + String(rest.removeFirst())
            case ("'", nil), ("\"", nil):
                quote = character
                word = word ?? ""
            case (" ", nil), ("\t", nil), ("\r", nil), ("\r\n", nil):
                if let word { words.append(word) }
                word = nil
            default: word = (word ?? "") + String(character)
            }
        }
        if let quote { throw UsageError("the quote \(quote) is not closed") }
        if let word { words.append(word) }
        return words
    }
}
