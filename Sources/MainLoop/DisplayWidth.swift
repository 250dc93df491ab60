// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// The width of text on a terminal, in columns, by GLib's tables of Unicode. `carillon` aligns its tables with it.
///
/// Threads: any.
package enum DisplayWidth {
    /// Returns 2 for wide East Asian characters and most emoji, 0 for characters drawn on the previous one (such as
    /// combining accents), and 1 for all others.
    package static func columns(of scalar: Unicode.Scalar) -> Int {
        // Nearly all displayed text is ASCII.
        if scalar.isASCII { return 1 }
        if g_unichar_iszerowidth(scalar.value) != 0 { return 0 }
        return g_unichar_iswide(scalar.value) != 0 ? 2 : 1
    }

    /// - Parameter text: text without control characters, which move the cursor by an unknown number of columns.
    package static func columns(of text: some StringProtocol) -> Int {
        text.unicodeScalars.reduce(0) { $0 + columns(of: $1) }
    }

    /// Returns the longest prefix of a text that needs at most `limit` columns, including the characters without width
    /// that are drawn on its last character.
    package static func prefix(of text: String, columns limit: Int) -> Substring {
        var used = 0
        var end = text.unicodeScalars.startIndex
        for index in text.unicodeScalars.indices {
            used += columns(of: text.unicodeScalars[index])
            if used > limit { break }
            end = text.unicodeScalars.index(after: index)
        }
        return text[..<end]
    }
}
