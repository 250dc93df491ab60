// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The user's choices for the display of `carillon top`: view, order, filter and position. Keys change them.
struct TopState: Sendable {
    /// The order of the rows of a view.
    struct Order: Equatable, Sendable {
        /// The index of the column by which rows are sorted.
        var column: Int
        var isReversed = false
    }

    /// The action that a key requires of ``TopRun``, apart from drawing the page.
    enum Effect {
        case none
        /// A new sample has to be requested at once.
        case ask
        /// The screen has to be drawn anew.
        case redraw
        case quit
    }

    var view = TopView.clients
    /// The text that shown rows contain; empty for all rows.
    var filter = ""
    /// The order of each view.
    private(set) var orders: [TopView: Order]
    private(set) var isPaused = false
    private(set) var showsHelp = false
    /// The filter that the user is typing, and the filter before; nil while none is typed.
    private(set) var editing: (old: String, text: String)?
    /// The index of the first row on the screen.
    var first = 0
    /// The number of rows, and the number of rows that fit on the screen. ``TopPage`` sets both.
    var count = 0
    var visibleRows = 1

    init() {
        orders = Dictionary(uniqueKeysWithValues: TopView.allCases.map { ($0, Order(column: $0.firstColumn)) })
    }

    /// The order of the current view.
    var order: Order {
        get { orders[view] ?? Order(column: 0) }
        set { orders[view] = newValue }
    }

    /// The filter in effect, which is that being typed.
    var shownFilter: String { editing?.text ?? filter }

    // MARK: Rows

    /// Returns the rows that contain the filter, in the chosen order. Unless it is reversed, numbers descend and texts
    /// ascend.
    func arrange(_ rows: [TopView.Row]) -> [TopView.Row] {
        let wanted = shownFilter.lowercased()
        let column = order.column
        let isNumber = view.columns[column].isNumber
        let sorted = rows.filter { wanted.isEmpty || $0.text.lowercased().holds(wanted) }.enumerated().sorted { a, b in
            let (left, right) = (a.element.cells[column], b.element.cells[column])
            if isNumber {
                let (x, y) = (left.number ?? -.infinity, right.number ?? -.infinity)
                if x != y { return order.isReversed ? x < y : x > y }
            } else {
                let (x, y) = (left.shown.text, right.shown.text)
                if x != y { return order.isReversed ? y.comesBefore(x) : x.comesBefore(y) }
            }
            // Equal rows stay in the order of the service, so that they do not move from sample to sample.
            return a.offset < b.offset
        }
        return sorted.map(\.element)
    }

    // MARK: Keys

    /// Handles a key. While a filter is typed, all keys belong to it; while the help is shown, any key closes it.
    mutating func press(_ key: CursesScreen.Key) -> Effect {
        if editing != nil { return edit(key) }
        if showsHelp {
            showsHelp = false
            return .none
        }
        switch key {
        case .up: scroll(by: -1)
        case .down: scroll(by: 1)
        case .pageUp: scroll(by: -visibleRows)
        case .pageDown: scroll(by: visibleRows)
        case .home: first = 0
        case .end: scroll(by: count)
        case .escape: filter = ""
        case .enter, .backspace: break
        case .character(let character): return press(character)
        }
        return .none
    }

    private mutating func press(_ character: Unicode.Scalar) -> Effect {
        switch character {
        case "q": return .quit
        // Control-L
        case "\u{0C}": return .redraw
        case "?", "h": showsHelp = true
        case "/": editing = (filter, filter)
        case "p", " ":
            isPaused.toggle()
            if !isPaused { return .ask }
        case "r": order.isReversed.toggle()
        // On many keyboards the comma and the point are the same keys without shift.
        case "<", ",": order = Order(column: max(0, order.column - 1))
        case ">", ".": order = Order(column: min(view.columns.count - 1, order.column + 1))
        case "\t": return show(TopView.allCases[(number(of: view) + 1) % TopView.allCases.count])
        case "1"..."9":
            let number = Int(character.value - Unicode.Scalar("1").value)
            if TopView.allCases.indices.contains(number) { return show(TopView.allCases[number]) }
        default:
            guard let column = view.columns.firstIndex(where: { $0.key == character }) else { break }
            // The same key again reverses the order.
            order = Order(column: column, isReversed: order.column == column && !order.isReversed)
        }
        return .none
    }

    private func number(of view: TopView) -> Int { TopView.allCases.firstIndex(of: view) ?? 0 }

    /// Changes to a view. Retained values are requested only while their view is shown.
    private mutating func show(_ view: TopView) -> Effect {
        guard view != self.view else { return .none }
        (self.view, first) = (view, 0)
        return view == .values ? .ask : .none
    }

    /// Handles a key while a filter is typed.
    private mutating func edit(_ key: CursesScreen.Key) -> Effect {
        guard let (old, text) = editing else { return .none }
        switch key {
        case .enter: (filter, editing) = (text, nil)
        case .escape: (filter, editing) = (old, nil)
        case .backspace: editing?.text = String(text.dropLast())
        case .character(let character) where character.properties.generalCategory != .control:
            editing?.text.unicodeScalars.append(character)
        default: break
        }
        first = 0
        return .none
    }

    private mutating func scroll(by lines: Int) {
        first += lines
        limitScrollPosition()
    }

    /// Limits the position of the first row, so that the screen is filled with rows if there are enough.
    mutating func limitScrollPosition() {
        first = max(0, min(first, count - visibleRows))
    }
}

extension String {
    /// Whether the text contains another one, byte for byte. The standard library's `contains` would link its regular
    /// expressions into the program.
    func holds(_ other: String) -> Bool {
        let (all, part) = (Array(utf8), Array(other.utf8))
        guard part.count <= all.count else { return false }
        return (0...all.count - part.count).contains { all[$0..<$0 + part.count].elementsEqual(part) }
    }

    /// Whether the text comes before another one in an order for people: numbers inside texts are compared as numbers,
    /// so that `:1.9` comes before `:1.10`.
    func comesBefore(_ other: String) -> Bool {
        var (left, right) = (Array(utf8)[...], Array(other.utf8)[...])
        func isDigit(_ byte: UInt8) -> Bool { UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte }
        while let a = left.first, let b = right.first {
            if isDigit(a), isDigit(b) {
                let (x, y) = (left.prefix(while: isDigit), right.prefix(while: isDigit))
                let (m, n) = (x.drop { $0 == UInt8(ascii: "0") }, y.drop { $0 == UInt8(ascii: "0") })
                if m.count != n.count { return m.count < n.count }
                if !m.elementsEqual(n) { return m.lexicographicallyPrecedes(n) }
                (left, right) = (left.dropFirst(x.count), right.dropFirst(y.count))
            } else {
                if a != b { return a < b }
                (left, right) = (left.dropFirst(), right.dropFirst())
            }
        }
        return left.isEmpty && !right.isEmpty
    }
}
