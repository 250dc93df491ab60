// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A pattern of GLib's `GPatternSpec`: `*` stands for any text, also none, and `?` for one character; all else for itself.
///
/// Threads: any.
package struct GlobPattern: Sendable {
    private let text: String

    package init(_ text: String) {
        self.text = text
    }

    /// Whether all of `candidate` is as the pattern says.
    package func matches(_ candidate: String) -> Bool {
        g_pattern_match_simple(text, candidate) != 0
    }

    /// Whether a text has what only makes sense in a pattern.
    package static func isPattern(_ text: String) -> Bool {
        text.utf8.contains { $0 == UInt8(ascii: "*") || $0 == UInt8(ascii: "?") }
    }
}
