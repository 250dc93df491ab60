// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A line of text in parts with styles. ``Terminal`` converts it to escape sequences, and ``CursesScreen`` draws it.
struct StyledLine: Equatable, Sendable {
    struct Part: Equatable, Sendable {
        var text: String
        var style: Terminal.Style?
    }

    private(set) var parts: [Part] = []

    init() {}

    init(_ text: String, _ style: Terminal.Style? = nil) {
        append(text, style)
    }

    /// Appends a part. Characters that could move the cursor are replaced by their JSON escapes.
    mutating func append(_ text: String, _ style: Terminal.Style? = nil) {
        if !text.isEmpty { parts.append(Part(text: NotificationFormat.harmless(text), style: style)) }
    }

    /// Returns the line in one style.
    func styled(_ style: Terminal.Style) -> StyledLine {
        var line = self
        for index in line.parts.indices { line.parts[index].style = style }
        return line
    }

    /// The text without styles.
    var text: String { parts.reduce("") { $0 + $1.text } }

    /// Returns the beginning of the line that fits into a number of terminal columns.
    func cut(to columns: Int) -> StyledLine {
        var line = StyledLine()
        var left = columns
        for part in parts {
            let text = DisplayWidth.prefix(of: part.text, columns: left)
            if !text.isEmpty { line.parts.append(Part(text: String(text), style: part.style)) }
            left -= DisplayWidth.columns(of: text)
            if text.endIndex != part.text.endIndex { break }
        }
        return line
    }
}
