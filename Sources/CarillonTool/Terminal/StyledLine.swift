// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A line with styles, for whatever shows it.
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

    /// - Parameter text: what could move the cursor in it is shown as JSON writes it.
    mutating func append(_ text: String, _ style: Terminal.Style? = nil) {
        if !text.isEmpty { parts.append(Part(text: NotificationFormat.harmless(text), style: style)) }
    }

    /// All of it in one style.
    func styled(_ style: Terminal.Style) -> StyledLine {
        var line = self
        for index in line.parts.indices { line.parts[index].style = style }
        return line
    }

    var text: String { parts.reduce("") { $0 + $1.text } }

    /// No more of it than takes so many columns.
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
