// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The user's choices for the display, and the effect of keys on them.
struct TopState: Sendable {
    struct Order: Equatable, Sendable {
        /// The number of the column.
        var column: Int
        var isReversed = false
    }

    enum Effect {
        case none
        /// The values have to be requested.
        case ask
        case redraw
        case quit
    }

    var view = TopView.clients
    var filter = ""
    private(set) var orders: [TopView: Order]
    private(set) var isPaused = false
    private(set) var showsHelp = false
    /// The text that is typed for the filter, and the filter before; nil while no text is typed.
    private(set) var editing: (old: String, text: String)?
    /// The number of the first row that is shown.
    var first = 0
    /// The number of rows, and the number that fits; the display sets both.
    var count = 0
    var room = 1

    init() {
        orders = Dictionary(uniqueKeysWithValues: TopView.allCases.map { ($0, Order(column: $0.firstColumn)) })
    }

    var order: Order {
        get { orders[view] ?? Order(column: 0) }
        set { orders[view] = newValue }
    }

    var shownFilter: String { editing?.text ?? filter }

    // MARK: Rows

    /// Returns the rows that pass the filter, in the chosen order. Numbers are in descending order, texts in the order
    /// of their characters.
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
            // In the order of the service's list, so that equal rows do not change places.
            return a.offset < b.offset
        }
        return sorted.map(\.element)
    }

    // MARK: Keys

    mutating func press(_ key: CursesScreen.Key) -> Effect {
        if editing != nil { return edit(key) }
        if showsHelp {
            showsHelp = false
            return .none
        }
        switch key {
        case .up: scroll(by: -1)
        case .down: scroll(by: 1)
        case .pageUp: scroll(by: -room)
        case .pageDown: scroll(by: room)
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
        case "\u{0C}": return .redraw
        case "?", "h": showsHelp = true
        case "/": editing = (filter, filter)
        case "p", " ":
            isPaused.toggle()
            if !isPaused { return .ask }
        case "r": order.isReversed.toggle()
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

    private mutating func show(_ view: TopView) -> Effect {
        guard view != self.view else { return .none }
        (self.view, first) = (view, 0)
        return view == .values ? .ask : .none
    }

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
        keepInside()
    }

    /// Keeps rows on the screen when there are fewer than before.
    mutating func keepInside() {
        first = max(0, min(first, count - room))
    }
}

extension String {
    /// Whether the text contains another one, byte for byte. The function of the standard library would link its
    /// regular expressions into the program.
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
