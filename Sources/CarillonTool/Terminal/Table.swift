// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A table for people, used by all commands that list something. Columns are aligned by the display width of their
/// characters, since some take two columns of a terminal and some none.
///
/// Characters in a cell that could break the line or move the cursor are replaced by their JSON escapes. Lines are cut
/// to the width of a terminal. Other outputs get whole lines.
struct Table: Sendable {
    enum Alignment: Sendable {
        case left
        /// For numbers.
        case right
    }

    struct Column: Sendable {
        let title: String
        let alignment: Alignment

        init(_ title: String, _ alignment: Alignment = .left) {
            self.title = title
            self.alignment = alignment
        }
    }

    struct Cell: Sendable, ExpressibleByStringInterpolation {
        let text: String
        let style: Terminal.Style?
        /// The width of the text, in columns of a terminal.
        let columns: Int

        init(_ text: String, _ style: Terminal.Style? = nil) {
            self.text = NotificationFormat.harmless(text)
            self.style = style
            columns = DisplayWidth.columns(of: self.text)
        }

        init(stringLiteral text: String) { self.init(text) }
    }

    private let columns: [Column]
    private(set) var rows: [[Cell]] = []
    /// The width, in terminal columns, below which no column of texts is narrowed. A wider title raises it.
    private static let least = 8
    /// The blanks between two columns.
    private static let gap = 2

    init(_ columns: [Column]) {
        self.columns = columns
    }

    /// Appends a row.
    ///
    /// - Parameter cells: one for each column.
    mutating func append(_ cells: [Cell]) {
        precondition(cells.count == columns.count, "a row has a cell for each column")
        rows.append(cells)
    }

    /// Returns the titles, followed by the rows, as they are written to a terminal or another output.
    ///
    /// - Parameter showsTitles: whether the first line has the titles.
    func lines(on terminal: Terminal, showsTitles: Bool = true) -> [String] {
        lines(within: terminal.width, showsTitles: showsTitles).map(terminal.text(of:))
    }

    /// Returns the titles, followed by the rows, with styles that the caller applies.
    ///
    /// - Parameter width: the number of columns; nil for no limit.
    func lines(within width: Int?, showsTitles: Bool = true) -> [StyledLine] {
        let all = (showsTitles ? [columns.map { Cell($0.title, .bold) }] : []) + rows
        let widths = widths(of: all, within: width)
        return all.map { line(Array($0.prefix(widths.count)), widths, within: width) }
    }

    /// Returns the titles of the last columns that are left out because the terminal is too narrow.
    func hiddenColumns(on terminal: Terminal) -> [String] {
        let all = [columns.map { Cell($0.title) }] + rows
        return columns.dropFirst(widths(of: all, within: terminal.width).count).map(\.title)
    }

    /// Returns the widths of the columns, which are those of their widest cells if the limit allows it.
    ///
    /// Otherwise the widest columns of texts are narrowed, but columns of numbers are not. If even the least widths
    /// exceed the limit, the last columns are left out.
    private func widths(of rows: [[Cell]], within limit: Int?) -> [Int] {
        var widths = columns.indices.map { index in rows.map { $0[index].columns }.max() ?? 0 }
        guard let limit else { return widths }
        let least = columns.indices.map { index in
            columns[index].alignment == .right
                ? widths[index]
                : min(widths[index], max(Self.least, DisplayWidth.columns(of: columns[index].title)))
        }
        func sum(_ widths: [Int]) -> Int { widths.reduce(0, +) + Self.gap * max(0, widths.count - 1) }
        while widths.count > 1, sum(Array(least.prefix(widths.count))) > limit { widths.removeLast() }
        // The number of columns of the terminal that are still missing.
        var excess = sum(widths) - limit
        while excess > 0 {
            let texts = widths.indices.filter { columns[$0].alignment == .left && widths[$0] > least[$0] }
            guard let widest = texts.max(by: { widths[$0] < widths[$1] }) else { break }
            // One column at a time, so that equally wide texts share the missing width.
            widths[widest] -= 1
            excess -= 1
        }
        return widths
    }

    /// Returns the line of a row.
    private func line(_ cells: [Cell], _ widths: [Int], within width: Int?) -> StyledLine {
        var line = StyledLine()
        var used = 0
        /// The number of blanks that are due before the next text, so that no line ends with blanks.
        var blanks = 0
        let limit = width ?? .max
        for (index, cell) in cells.enumerated() {
            if index > 0 { blanks += Self.gap }
            let isRight = columns[index].alignment == .right
            if isRight { blanks += widths[index] - cell.columns }
            let room = min(widths[index], max(0, limit - used - blanks))
            // A cut number would be wrong, so a number that does not fit is not shown.
            if room == 0 || isRight && room < cell.columns { break }
            let text = Self.cut(cell.text, cell.columns, to: room)
            let taken = DisplayWidth.columns(of: text)
            if !text.isEmpty {
                line.append(String(repeating: " ", count: blanks))
                line.append(text, cell.style)
                used += blanks + taken
                blanks = 0
            }
            if !isRight { blanks += widths[index] - taken }
        }
        return line
    }

    /// Cuts a text, with an ellipsis in place of the missing part.
    private static func cut(_ text: String, _ columns: Int, to room: Int) -> String {
        columns > room ? DisplayWidth.prefix(of: text, columns: room - 1) + "…" : text
    }
}
