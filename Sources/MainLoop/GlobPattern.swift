// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A pattern of GLib's `GPatternSpec`: `*` matches any text, also the empty text, `?` matches one character, and every
/// other character matches itself. `carillon` filters names and objects with it.
///
/// Threads: any.
package struct GlobPattern: Sendable {
    private let text: String

    package init(_ text: String) {
        self.text = text
    }

    /// Whether the pattern matches all of `candidate`.
    package func matches(_ candidate: String) -> Bool {
        g_pattern_match_simple(text, candidate) != 0
    }

    /// Whether a text contains characters with a meaning in patterns.
    package static func isPattern(_ text: String) -> Bool {
        text.utf8.contains { $0 == UInt8(ascii: "*") || $0 == UInt8(ascii: "?") }
    }
}
